// SPDX-License-Identifier: MIT OR Apache-2.0
//! A serial line against Linux's own line discipline, that of a pseudoterminal: both get the same
//! settings and the same bytes, and have to echo and to hand out the same.

use std::{
    fmt::{Debug, Display},
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    thread::sleep,
    time::{Duration, Instant},
};

use crtos_tty::{Port, Termios, Uart, model::Model};
use linux_raw_sys::general as linux;
use proptest::{prelude::*, test_runner::TestCaseError};

/// Flags that are tried, each on or off.
const INPUT: [u32; 9] = [
    linux::ICRNL,
    linux::INLCR,
    linux::IGNCR,
    linux::ISTRIP,
    linux::IUCLC,
    linux::PARMRK,
    linux::IUTF8,
    linux::IMAXBEL,
    linux::IXON | linux::IXANY,
];
const OUTPUT: [u32; 7] = [
    linux::OPOST,
    linux::ONLCR,
    linux::OCRNL,
    linux::ONOCR,
    linux::ONLRET,
    linux::OLCUC,
    linux::TAB3,
];
const LOCAL: [u32; 11] = [
    linux::ISIG,
    linux::ICANON,
    linux::ECHO,
    linux::ECHOE,
    linux::ECHOK,
    linux::ECHONL,
    linux::NOFLSH,
    linux::ECHOCTL,
    linux::ECHOPRT,
    linux::ECHOKE,
    linux::IEXTEN,
];

/// What is typed often.
const PATTERNS: [&[u8]; 4] = [b"ab ", b"a\t b", b"\x01a -", b"\xc3\xa9 x"];

/// What a user does, or a program.
#[derive(Clone, Debug)]
enum Step {
    Type(Vec<u8>),
    /// A pattern, so many times.
    Paste(&'static [u8], usize),
    Read(usize),
    Print(Vec<u8>),
    Set(Termios),
}

/// A pseudoterminal: the end of the user, and that of the program.
struct Pair {
    user: File,
    program: File,
}

fn open(path: &str) -> File {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

fn is_readable(file: &File) -> bool {
    let mut asked = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: a structure of one file, which is there.
    assert!(unsafe { libc::poll(&mut asked, 1, 0) } >= 0);
    asked.revents & libc::POLLIN != 0
}

fn number_of(file: &File, request: libc::Ioctl) -> i32 {
    let mut number = 0i32;
    // SAFETY: both requests that are made write an int.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), request, &mut number) }, 0);
    number
}

/// What can be read of a file at once, at most so many bytes; `None` if nothing can.
fn read(mut file: &File, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    match file.read(&mut bytes) {
        Ok(count) => {
            bytes.truncate(count);
            Some(bytes)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

impl Pair {
    fn new() -> Self {
        let user = open("/dev/ptmx");
        let unlocked = 0i32;
        // SAFETY: it reads an int.
        assert_eq!(unsafe { libc::ioctl(user.as_raw_fd(), libc::TIOCSPTLCK, &unlocked) }, 0);
        let number = number_of(&user, libc::TIOCGPTN);
        let program = open(&format!("/dev/pts/{number}"));
        Self { user, program }
    }

    fn set(&self, termios: &Termios) {
        let bytes = termios.to_bytes();
        // SAFETY: it reads a `struct termios`, which that is.
        assert_eq!(unsafe { libc::ioctl(self.program.as_raw_fd(), libc::TCSETS, &bytes) }, 0);
    }

    /// What the user sees, which should be so many bytes.
    fn seen(&self, expected: usize, pause: Duration) -> Vec<u8> {
        let end = Instant::now() + Duration::from_millis(50) + 50 * pause;
        // A look at an end that has nothing to read waits for what is on its way there.
        if is_readable(&self.program) && expected == 0 || !pause.is_zero() {
            sleep(pause);
        }
        let mut all = Vec::new();
        loop {
            if is_readable(&self.user) {
                all.extend(read(&self.user, 10_000).unwrap());
            } else if all.len() >= expected || Instant::now() > end {
                return all;
            }
        }
    }
}

fn line() -> (Model, Port<Model>) {
    let model = Model::default();
    let mut port = Port::new(Uart::find(model.clone()).unwrap(), 115_200);
    port.open();
    (model, port)
}

/// The line carries all that may be sent; returns that.
fn sent(model: &Model, port: &mut Port<Model>) -> Vec<u8> {
    loop {
        while port.step() {}
        let before = model.0.borrow().sent.len();
        model.carry(16);
        if model.0.borrow().sent.len() == before && !port.step() {
            return std::mem::take(&mut model.0.borrow_mut().sent);
        }
    }
}

fn termios() -> impl Strategy<Value = Termios> {
    let flags = |all: &'static [u32]| {
        prop::collection::vec(any::<bool>(), all.len())
            .prop_map(|on| all.iter().zip(on).map(|(flag, on)| if on { *flag } else { 0 }).sum())
    };
    let further = prop::collection::vec(prop::sample::select(&b"\0EF"[..]), 2);
    (flags(&INPUT), flags(&OUTPUT), flags(&LOCAL), further, any::<bool>()).prop_map(
        |(input, output, local, further, is_line)| {
            let mut termios = Termios { input, output, local, ..Termios::default() };
            // Lines are what this is about.
            termios.local |= if is_line { linux::ICANON } else { 0 };
            termios.characters[linux::VEOL as usize] = further[0];
            termios.characters[linux::VEOL2 as usize] = further[1];
            termios
        },
    )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let special =
        b"\n\r\t\x08\x03\x04\x0f\x11\x12\x13\x15\x16\x17\x1a\x1c\x7f\x00\xff\x80\xc3\xa9\xe2\x07EF";
    let byte = prop_oneof![
        prop::sample::select(&special[..]),
        prop::sample::select(&b"abcXY1_ -"[..]),
        prop::sample::select(&b"\n\x7f\x15\x17\x16\t"[..])
    ];
    prop::collection::vec(byte, 1..12)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => bytes().prop_map(Step::Type),
        1 => (prop::sample::select(&PATTERNS[..]), 1usize..1500)
            .prop_map(|(pattern, count)| Step::Paste(pattern, count)),
        3 => prop_oneof![1usize..20, 1usize..6000].prop_map(Step::Read),
        1 => bytes().prop_map(Step::Print),
        1 => termios().prop_map(Step::Set),
    ]
}

/// What is of Linux and what is of the line are the same.
fn alike<T: PartialEq + Debug>(linux: T, own: T, when: impl Display) -> Result<(), TestCaseError> {
    match linux == own {
        true => Ok(()),
        false => Err(TestCaseError::fail(format!("{when}: Linux {linux:?}, here {own:?}"))),
    }
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn compare(first: Termios, steps: &[Step], pause: Duration) -> Result<(), TestCaseError> {
    let pair = Pair::new();
    let (model, mut port) = line();
    let mut termios = first;
    let mut pasted = 0;
    pair.set(&termios);
    port.set_termios(&termios);
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Type(bytes) => {
                // Of a long line, only the end is shown when it is killed or shown anew. Linux
                // overruns its buffer by a byte that takes two places.
                // VLNEXT has it echo zeros where characters are being erased.
                let is_risky = termios.has_local(linux::ECHOPRT);
                let is_usual = |&byte: &u8| match byte {
                    0x12 | 0x15 | 0xff => pasted == 0,
                    0x16 => !is_risky,
                    _ => true,
                };
                for byte in bytes.iter().copied().filter(is_usual) {
                    // What has no room behind a whole line, Linux keeps elsewhere.
                    if pasted > 0 && port.is_readable(1) {
                        break;
                    }
                    (&pair.user).write_all(&[byte]).unwrap();
                    model.arrive(&[byte]);
                    let own = sent(&model, &mut port);
                    let linux = pair.seen(own.len(), pause);
                    alike(
                        show(&linux),
                        show(&own),
                        format!("echo of {byte:#x} at {at}, {termios:x?}"),
                    )?;
                }
            }
            Step::Paste(pattern, count) => {
                // Bytes that nobody can read are kept elsewhere by Linux, and would come later.
                if !termios.has_local(linux::ICANON) || port.is_readable(1) {
                    continue;
                }
                // Of a line that takes all room, Linux echoes zeros.
                pasted += pattern.len() * count;
                if pasted > 4000 && termios.has_local(linux::ECHO | linux::ECHONL) {
                    break;
                }
                for part in pattern.repeat(*count).chunks(16) {
                    (&pair.user).write_all(part).unwrap();
                    model.arrive(part);
                    let own = sent(&model, &mut port);
                    let linux = pair.seen(own.len(), Duration::ZERO);
                    alike(show(&linux), show(&own), format!("echo of many at {at}"))?;
                }
            }
            Step::Read(most) => {
                let waiting = number_of(&pair.program, libc::FIONREAD);
                // Of a full buffer, Linux counts ends that are not read as well.
                if waiting < 4096 {
                    alike(waiting, port.readable() as i32, format!("FIONREAD at {at}"))?;
                }
                alike(is_readable(&pair.program), port.is_readable(1), format!("poll at {at}"))?;
                let linux = read(&pair.program, *most);
                let mut own = vec![0; *most];
                // As a program of the realm reads.
                let mut count = 0;
                let mut is_there = false;
                loop {
                    let taken = port.read(&mut own[count..]);
                    count += taken.count;
                    is_there |= taken.count > 0 || taken.has_ended;
                    if taken.count == 0 || taken.has_ended || count == *most {
                        break;
                    }
                }
                own.truncate(count);
                alike(
                    linux.as_deref().map(show),
                    is_there.then(|| show(&own)),
                    format!("read at {at}, {termios:x?}"),
                )?;
                let own = sent(&model, &mut port);
                alike(
                    show(&pair.seen(own.len(), pause)),
                    show(&own),
                    format!("sent by a read at {at}"),
                )?;
            }
            Step::Print(bytes) if !termios.has_input(linux::IXON) => {
                (&pair.program).write_all(bytes).unwrap();
                assert_eq!(port.write(bytes), bytes.len());
                let own = sent(&model, &mut port);
                alike(
                    show(&pair.seen(own.len(), pause)),
                    show(&own),
                    format!("print at {at}, {termios:x?}"),
                )?;
            }
            Step::Print(_) => {}
            Step::Set(other) => {
                // How wide a character is was noted when it came.
                let keep = |to: u32, flag: u32, from: u32| to & !flag | from & flag;
                termios = Termios {
                    input: keep(other.input, linux::IUTF8, first.input),
                    local: keep(other.local, linux::ECHOCTL, first.local),
                    ..*other
                };
                pair.set(&termios);
                port.set_termios(&termios);
                let own = sent(&model, &mut port);
                alike(show(&pair.seen(own.len(), pause)), show(&own), format!("settings at {at}"))?;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        max_shrink_iters: 3000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_line_is_as_that_of_linux(
        first in termios(),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        // Linux's half is done by threads of its kernel, which may be late.
        if compare(first, &steps, Duration::ZERO).is_err() {
            compare(first, &steps, Duration::from_millis(20))?;
        }
    }
}
