// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a signalfd says, against the C library's structure.

use std::mem::{offset_of, size_of};

use crtos_signal::{
    Info,
    signalfd::{SIZE, to_bytes},
};
use libc::signalfd_siginfo as Said;

/// Offset, value and length.
type Field = (usize, u64, usize);

/// The words of a `siginfo` after its code.
const FIRST: u64 = 0x1111_2222_3333_4444;
const SECOND: u64 = 0x5555_6666_7777_8888;
const THIRD: u64 = 0x1122_3344_5566_7788;
const FOURTH: u64 = 0x99aa_bbcc_ddee_ff00;

fn said(signal: i32, code: i32) -> [u8; SIZE] {
    to_bytes(&Info([signal as u64 | 7 << 32, code as u32 as u64, FIRST, SECOND, THIRD, FOURTH]))
}

/// Number, errno and code, and these fields.
fn expected(signal: i32, code: i32, fields: &[Field]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let head = [
        (offset_of!(Said, ssi_signo), signal as u64, 4),
        (offset_of!(Said, ssi_errno), 7, 4),
        (offset_of!(Said, ssi_code), code as u64, 4),
    ];
    for &(at, value, length) in head.iter().chain(fields) {
        bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    }
    bytes
}

#[test]
fn fields_are_those_of_linux() {
    assert_eq!(size_of::<Said>(), SIZE);
    let sender =
        [(offset_of!(Said, ssi_pid), FIRST, 4), (offset_of!(Said, ssi_uid), FIRST >> 32, 4)];
    let value = [(offset_of!(Said, ssi_int), SECOND, 4), (offset_of!(Said, ssi_ptr), SECOND, 8)];
    let child = [
        (offset_of!(Said, ssi_status), SECOND, 4),
        (offset_of!(Said, ssi_utime), THIRD, 8),
        (offset_of!(Said, ssi_stime), FOURTH, 8),
    ];
    let timer =
        [(offset_of!(Said, ssi_tid), FIRST, 4), (offset_of!(Said, ssi_overrun), FIRST >> 32, 4)];
    let poll = [(offset_of!(Said, ssi_band), FIRST, 4), (offset_of!(Said, ssi_fd), SECOND, 4)];
    let address = [(offset_of!(Said, ssi_addr), FIRST, 8)];
    let broken = [address[0], (offset_of!(Said, ssi_addr_lsb), SECOND, 2)];
    let call = [
        (offset_of!(Said, ssi_call_addr), FIRST, 8),
        (offset_of!(Said, ssi_syscall), SECOND, 4),
        (offset_of!(Said, ssi_arch), SECOND >> 32, 4),
    ];
    let cases: &[(i32, i32, &[&[Field]])] = &[
        (libc::SIGUSR1, libc::SI_USER, &[&sender]),
        (libc::SIGCHLD, libc::SI_USER, &[&sender]),
        (libc::SIGINT, libc::SI_KERNEL, &[&sender]),
        (libc::SIGSEGV, libc::SI_KERNEL, &[&sender]),
        (libc::SIGUSR1, libc::SI_TKILL, &[&sender, &value]),
        (libc::SIGCHLD, libc::SI_QUEUE, &[&sender, &value]),
        (40, libc::SI_MESGQ, &[&sender, &value]),
        (40, libc::SI_TIMER, &[&timer, &value]),
        (libc::SIGCHLD, libc::CLD_EXITED, &[&sender, &child]),
        (libc::SIGCHLD, libc::CLD_CONTINUED, &[&sender, &child]),
        (libc::SIGIO, 1, &[&poll]),
        (40, 1, &[&poll]),
        (libc::SIGUSR1, 6, &[&poll]),
        (libc::SIGUSR1, 7, &[&sender]),
        (libc::SIGUSR1, libc::SI_SIGIO, &[&poll]),
        (libc::SIGSEGV, 1, &[&address]),
        (libc::SIGILL, 11, &[&address]),
        (libc::SIGFPE, 16, &[&sender]),
        (libc::SIGBUS, 1, &[&address]),
        (libc::SIGBUS, 4, &[&broken]),
        (libc::SIGSYS, 1, &[&call]),
    ];
    for &(signal, code, fields) in cases {
        assert_eq!(said(signal, code), expected(signal, code, &fields.concat()), "{signal} {code}");
    }
}
