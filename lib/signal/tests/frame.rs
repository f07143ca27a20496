// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signal frame against the layout of the C library's structures.

use std::mem::{offset_of, size_of};

use crtos_abi::UserAddr;
use crtos_signal::{
    Info,
    frame::{CONTEXT, Frame, INFO, READ, SIZE, describe_state, is_described, place},
};
use proptest::prelude::*;

#[test]
fn offsets_are_those_of_linux() {
    let context = CONTEXT as usize;
    let registers = context + offset_of!(libc::ucontext_t, uc_mcontext);
    assert_eq!(registers, 48);
    assert_eq!(registers + offset_of!(libc::mcontext_t, fpregs), 48 + 23 * 8);
    // The C library reserves more room for the mask and the old state.
    assert_eq!(context + offset_of!(libc::ucontext_t, uc_sigmask), 304);
    assert_eq!(SIZE, INFO as usize + size_of::<libc::siginfo_t>());
    let frame = Frame { registers: std::array::from_fn(|index| index as u64), ..Frame::default() };
    let words = frame.to_words();
    for (register, value) in [
        (libc::REG_R8, 0),
        (libc::REG_RDI, 8),
        (libc::REG_RSP, 15),
        (libc::REG_RIP, 16),
        (libc::REG_EFL, 17),
    ] {
        assert_eq!(words[registers / 8 + register as usize], value);
    }
    assert_eq!(libc::REG_CSGSFS as usize * 8 + registers, 192);
    assert_eq!(libc::REG_CR2 as usize * 8 + registers, 224);
    let info = Info::timer(5, 6, 7);
    let frame = Frame { mask: 1, state: UserAddr::new(2), info, ..Frame::default() };
    let words = frame.to_words();
    assert_eq!((words[304 / 8], words[registers / 8 + 23]), (1, 2));
    assert_eq!(words[INFO as usize / 8..][..6], info.0);
}

proptest! {
    #[test]
    fn a_frame_reads_back(
        registers in any::<[u64; 18]>(),
        mask: u64,
        state: u64,
        flags: u64,
        fault: [u64; 4],
        signal in 1_u32..65,
        value: u64,
    ) {
        let info = Info::fault(signal, -6, UserAddr::new(value));
        let state = UserAddr::new(state);
        let frame = Frame { registers, mask, state, flags, fault, info, ..Frame::default() };
        let read = Frame::from_bytes(
            frame.to_words().map(u64::to_le_bytes).as_flattened()[..READ].try_into().unwrap(),
        );
        prop_assert_eq!(read, Frame { info: Info::default(), ..frame });
    }

    #[test]
    fn a_frame_fits_below_the_stack_pointer(top: u64, size in 512..4096_usize) {
        let top = UserAddr::new(top);
        if let Some(place) = place(top, size) {
            prop_assert!(
                place.frame + SIZE as u64 <= place.state && place.state + size as u64 + 4 <= top
            );
            prop_assert_eq!((place.frame.offset_in(16), place.state.offset_in(64)), (8, 0));
        }
    }

    #[test]
    fn state_is_recognised(size in 512..4096_usize, cut in 0..5000_usize) {
        let mut image = vec![0; size + 4];
        describe_state(&mut image, size, 7);
        prop_assert!(is_described(&image, size));
        image.truncate(cut);
        prop_assert_eq!(is_described(&image, size), cut >= size + 4);
    }
}
