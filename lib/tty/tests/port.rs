// SPDX-License-Identifier: MIT OR Apache-2.0
//! A serial line against a UART whose other end the tests play.

use crtos_tty::{
    Port, Termios, Uart, Wake,
    model::Model,
    port::{Flow, STEPS},
    uart::{Driven, Enabled, Seen, Status},
};
use linux_raw_sys::general as linux;
use proptest::prelude::*;

const HIGHEST: u32 = 115_200;

fn open(change: impl FnOnce(&mut Termios)) -> (Model, Port<Model>) {
    let model = Model::default();
    let mut port = Port::new(Uart::find(model.clone()).unwrap(), HIGHEST);
    port.open();
    let mut termios = *port.termios();
    change(&mut termios);
    port.set_termios(&termios);
    (model, port)
}

/// cfmakeraw(3).
fn raw(termios: &mut Termios) {
    (termios.input, termios.output, termios.local) = (0, 0, 0);
}

fn steps(port: &mut Port<Model>) {
    while port.step() {}
}

/// Whether the UART's line is raised.
fn interrupts(model: &Model) -> bool {
    model.0.borrow().interrupts()
}

/// How many accesses `f` takes.
fn accesses(model: &Model, f: impl FnOnce()) -> usize {
    model.0.borrow_mut().accesses = 0;
    f();
    model.0.borrow().accesses
}

/// The line carries all that is to be sent; returns that.
fn sent(model: &Model, port: &mut Port<Model>) -> Vec<u8> {
    loop {
        steps(port);
        model.carry(16);
        if port.is_drained() {
            return std::mem::take(&mut model.0.borrow_mut().sent);
        }
    }
}

fn arrive(model: &Model, port: &mut Port<Model>, bytes: &[u8]) {
    for bytes in bytes.chunks(16) {
        model.arrive(bytes);
        steps(port);
    }
}

fn read(port: &mut Port<Model>) -> Option<Vec<u8>> {
    port.is_readable(1).then(|| {
        let mut bytes = [0; 5000];
        let taken = port.read(&mut bytes);
        bytes[..taken.count].to_vec()
    })
}

/// What a canonical line makes of what is typed: what is read, and what is sent back.
fn typed(change: impl FnOnce(&mut Termios), text: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (model, mut port) = open(change);
    arrive(&model, &mut port, text);
    let echo = sent(&model, &mut port);
    (std::iter::from_fn(|| read(&mut port)).collect(), echo)
}

#[test]
fn a_uart_that_is_silenced_works_by_steps_alone() {
    let (model, mut port) = open(raw);
    assert!(!interrupts(&model) && !port.is_silent());
    model.arrive(b"a");
    assert!(interrupts(&model));
    port.silence();
    assert!(!interrupts(&model) && port.is_silent());
    assert!(port.serve());
    assert_eq!(read(&mut port), Some(b"a".to_vec()));
    port.close();
    port.open();
    assert!(model.0.borrow().enabled.is_empty());
}

#[test]
fn opening_drives_the_line_and_closing_hangs_up() {
    let (model, mut port) = open(raw);
    {
        let state = model.0.borrow();
        assert_eq!((state.divisor, state.line), (12, 3));
        assert!(state.driven.contains(Driven::DTR | Driven::RTS | Driven::OUT2));
        assert!(state.enabled.contains(Enabled::RECEIVED | Enabled::FAULT | Enabled::MODEM));
    }
    port.close();
    let state = model.0.borrow();
    assert!(state.driven.is_empty() && state.enabled.is_empty());
}

#[test]
fn the_format_is_what_the_settings_say() {
    let (model, mut port) = open(|termios| {
        raw(termios);
        termios.control = termios.control & !linux::CSIZE | linux::CS7 | linux::CSTOPB;
        termios.control |= linux::PARENB | linux::PARODD;
        termios.set_speed(57_600);
    });
    assert_eq!((model.0.borrow().divisor, model.0.borrow().line), (2, 0b0000_1110));
    let mut termios = *port.termios();
    termios.set_speed(230_400);
    port.set_termios(&termios);
    assert_eq!(port.termios().speed(), 57_600, "the UART does not have that speed");
    termios.set_speed(7200);
    port.set_termios(&termios);
    assert_eq!((port.termios().speed(), model.0.borrow().divisor), (7200, 16));
}

#[test]
fn b0_hangs_up_until_there_is_a_speed_again() {
    let (model, mut port) = open(raw);
    let mut termios = *port.termios();
    termios.set_speed(0);
    port.set_termios(&termios);
    assert!(!model.0.borrow().driven.intersects(Driven::DTR | Driven::RTS));
    termios.set_speed(1200);
    port.set_termios(&termios);
    assert!(model.0.borrow().driven.contains(Driven::DTR | Driven::RTS));
}

#[test]
fn a_line_is_edited_until_it_ends() {
    let (lines, echo) = typed(|_| {}, b"helpo\x7f\x7flo\rsecond\n");
    assert_eq!(lines, [b"hello\n".to_vec(), b"second\n".to_vec()]);
    assert_eq!(echo, b"helpo\x08 \x08\x08 \x08lo\r\nsecond\r\n");
    let (lines, echo) = typed(|_| {}, b"one two\x17three\x15\x01\x7fx\n");
    assert_eq!(lines, [b"x\n".to_vec()]);
    let erase = b"\x08 \x08";
    let mut wanted = b"one two".to_vec();
    wanted.extend(erase.repeat(3));
    wanted.extend(b"three");
    wanted.extend(erase.repeat(9));
    wanted.extend(b"^A");
    wanted.extend(erase.repeat(2));
    wanted.extend(b"x\r\n");
    assert_eq!(echo, wanted);
}

#[test]
fn special_characters_end_lines_or_are_literal() {
    let (lines, _) = typed(|_| {}, b"abc\x04\x04d\x16\x04\n");
    assert_eq!(lines, [b"abc".to_vec(), vec![], b"d\x04\n".to_vec()]);
    let eol = |termios: &mut Termios| termios.characters[linux::VEOL as usize] = b';';
    assert_eq!(typed(eol, b"a;b\n").0, [b"a;".to_vec(), b"b\n".to_vec()]);
}

#[test]
fn an_end_behind_a_full_buffer_goes_with_it() {
    let (model, mut port) = open(|_| {});
    arrive(&model, &mut port, b"abc\x04d\n");
    let mut bytes = [0; 3];
    let taken = port.read(&mut bytes);
    assert!(taken.count == 3 && taken.has_ended);
    assert_eq!(port.readable(), 2);
    assert_eq!(read(&mut port), Some(b"d\n".to_vec()));
}

#[test]
fn input_flags_change_bytes() {
    let flags = |input: u32| move |termios: &mut Termios| (raw(termios), termios.input = input).1;
    let bytes = |input, text| typed(flags(input), text).0.concat();
    assert_eq!(bytes(0, b"a\r\n\xe1\x13"), b"a\r\n\xe1\x13");
    assert_eq!(bytes(linux::ICRNL, b"a\r\n"), b"a\n\n");
    assert_eq!(bytes(linux::INLCR, b"a\r\n"), b"a\r\r");
    assert_eq!(bytes(linux::IGNCR, b"a\r\n"), b"a\n");
    assert_eq!(bytes(linux::ISTRIP, b"\xe1"), b"a");
    assert_eq!(bytes(linux::PARMRK, b"\xff"), b"\xff\xff");
    assert_eq!(bytes(linux::IXON, b"a\x11b"), b"ab");
}

#[test]
fn faults_are_counted_and_told_as_the_settings_say() {
    let received = |input: u32, fault: Status| {
        let (model, mut port) = open(|termios| (raw(termios), termios.input = input).1);
        model.arrive(b"a");
        model.arrive_with(b'b', fault);
        model.arrive(b"c");
        steps(&mut port);
        (read(&mut port).unwrap_or_default(), port.counters())
    };
    use Status as S;
    use linux::{BRKINT, IGNBRK, IGNPAR, INPCK, PARMRK};
    assert_eq!(received(0, S::PARITY).0, b"abc");
    assert_eq!(received(INPCK, S::PARITY).0, b"a\0c");
    assert_eq!(received(INPCK | PARMRK, S::FRAMING).0, b"a\xff\0bc");
    assert_eq!(received(IGNPAR, S::FRAMING).0, b"ac");
    assert_eq!(received(IGNBRK, S::BREAK).0, b"ac");
    assert_eq!(received(PARMRK, S::BREAK).0, b"a\xff\0\0c");
    assert_eq!(received(BRKINT, S::BREAK).0, b"c", "a break flushes");
    assert_eq!(received(0, S::PARITY).1.parity, 1);
    assert_eq!(received(0, S::FRAMING).1.frame, 1);
    let counters = received(0, S::BREAK | S::FRAMING).1;
    assert_eq!((counters.brk, counters.frame, counters.rx), (1, 0, 3));
}

#[test]
fn signals_flush_unless_they_must_not() {
    let received = |local: u32| {
        let (model, mut port) = open(|termios| (raw(termios), termios.local = local).1);
        port.write(b"unsent");
        arrive(&model, &mut port, b"a\x03b");
        (read(&mut port), port.unsent())
    };
    assert_eq!(received(0), (Some(b"a\x03b".to_vec()), 0));
    assert_eq!(received(linux::ISIG), (Some(b"b".to_vec()), 0));
    assert_eq!(received(linux::ISIG | linux::NOFLSH), (Some(b"ab".to_vec()), 0));
}

#[test]
fn start_and_stop_are_obeyed() {
    let (model, mut port) = open(|termios| (raw(termios), termios.input = linux::IXON).1);
    arrive(&model, &mut port, b"\x13");
    port.write(b"later");
    steps(&mut port);
    model.carry(16);
    assert_eq!((model.0.borrow().sent.len(), port.unsent()), (0, 5));
    arrive(&model, &mut port, b"\x11");
    assert_eq!(sent(&model, &mut port), b"later");
    port.flow(Flow::StopSending);
    port.write(b"held");
    arrive(&model, &mut port, b"\x11");
    assert_eq!(port.unsent(), 4, "the program holds it");
    port.flow(Flow::StopReceiving);
    steps(&mut port);
    model.carry(16);
    assert_eq!(std::mem::take(&mut model.0.borrow_mut().sent), b"\x13");
    port.flow(Flow::Send);
    assert_eq!(sent(&model, &mut port), b"held");
}

#[test]
fn the_sender_is_told_when_room_runs_low() {
    let (model, mut port) = open(|termios| (raw(termios), termios.input = linux::IXOFF).1);
    arrive(&model, &mut port, &[b'x'; 3900]);
    assert_eq!(sent(&model, &mut port), b"");
    arrive(&model, &mut port, &[b'x'; 100]);
    assert_eq!(sent(&model, &mut port), b"\x13");
    assert_eq!(read(&mut port).map(|bytes| bytes.len()), Some(4000));
    assert_eq!(sent(&model, &mut port), b"\x11");

    let (model, mut port) = open(|termios| (raw(termios), termios.control |= linux::CRTSCTS).1);
    arrive(&model, &mut port, &[b'x'; 4000]);
    assert!(!model.0.borrow().driven.contains(Driven::RTS));
    read(&mut port);
    assert!(model.0.borrow().driven.contains(Driven::RTS));
}

#[test]
fn the_sender_goes_on_for_the_rest_of_a_line() {
    let (model, mut port) = open(|termios| {
        (raw(termios), termios.input = linux::IXOFF, termios.local = linux::ICANON).0
    });
    arrive(&model, &mut port, b"line\n");
    arrive(&model, &mut port, &[b'x'; 3970]);
    assert_eq!(sent(&model, &mut port), b"\x13");
    assert_eq!(read(&mut port), Some(b"line\n".to_vec()));
    assert_eq!(sent(&model, &mut port), b"\x11", "nobody can read before this line ends");
    arrive(&model, &mut port, b"\n");
    assert_eq!(read(&mut port).map(|bytes| bytes.len()), Some(3971));
    assert_eq!(sent(&model, &mut port), b"\x13\x11");
}

#[test]
fn a_program_starts_what_a_program_has_stopped() {
    let (model, mut port) = open(|termios| (raw(termios), termios.input = linux::IXON).1);
    arrive(&model, &mut port, b"\x13");
    port.write(b"later");
    port.flow(Flow::Send);
    steps(&mut port);
    assert_eq!(port.unsent(), 5, "the other end takes nothing");
    port.flow(Flow::StopSending);
    port.flow(Flow::Send);
    assert_eq!(sent(&model, &mut port), b"later");
}

#[test]
fn a_mark_is_kept_whole_or_not_at_all() {
    use linux::{INPCK, PARMRK};
    // One that is doubled, and one of a fault, where there is room for less.
    for (room, status) in [(1, Status::empty()), (1, Status::PARITY), (2, Status::BREAK)] {
        let (model, mut port) = open(|termios| {
            raw(termios);
            termios.input = PARMRK | INPCK;
        });
        arrive(&model, &mut port, &vec![b'x'; 4095 - room]);
        model.arrive_with(0xff, status);
        steps(&mut port);
        assert_eq!(port.readable() as usize, 4095 - room);
        assert_eq!(port.counters().buf_overrun, 1);
    }
}

#[test]
fn words_have_letters_of_other_languages() {
    let canonical = |termios: &mut Termios| {
        (termios.input, termios.output) = (linux::IUTF8, 0);
        termios.local = linux::ICANON | linux::IEXTEN;
    };
    let (lines, _) = typed(canonical, "schöne Grüße\x17x\n".as_bytes());
    assert_eq!(lines, ["schöne x\n".as_bytes()]);
    let (lines, _) = typed(canonical, "a×b\x17\n".as_bytes());
    assert_eq!(lines, [b"\n"], "of UTF-8, the first byte counts");
}

#[test]
fn nothing_is_sent_to_an_end_that_is_not_ready() {
    let (model, mut port) = open(|termios| (raw(termios), termios.control |= linux::CRTSCTS).1);
    model.lines(Seen::DSR | Seen::DCD);
    steps(&mut port);
    port.write(b"waits");
    steps(&mut port);
    assert_eq!(port.unsent(), 5);
    model.lines(Seen::DSR | Seen::DCD | Seen::CTS);
    steps(&mut port);
    assert_eq!(sent(&model, &mut port), b"waits");
    assert_eq!(port.counters().cts, 2);
}

#[test]
fn a_lost_carrier_hangs_up() {
    let lost = |control: u32| {
        let (model, mut port) = open(|termios| {
            raw(termios);
            termios.control = termios.control & !linux::CLOCAL | control;
        });
        port.take_wake();
        model.lines(Seen::CTS | Seen::DSR);
        steps(&mut port);
        port.take_wake()
    };
    assert_eq!(lost(linux::CLOCAL), Wake::MODEM);
    assert_eq!(lost(0), Wake::MODEM | Wake::HANG_UP);
}

#[test]
fn modem_lines_are_told_and_driven() {
    let (model, mut port) = open(raw);
    let seen = linux::TIOCM_CTS | linux::TIOCM_DSR | linux::TIOCM_CAR;
    let driven = linux::TIOCM_DTR | linux::TIOCM_RTS | linux::TIOCM_OUT2;
    assert_eq!(port.lines(), seen | driven);
    port.drive(linux::TIOCM_RTS | linux::TIOCM_CAR, false);
    assert_eq!(port.lines(), seen | driven & !linux::TIOCM_RTS);
    port.drive(linux::TIOCM_OUT2, false);
    assert!(model.0.borrow().driven.contains(Driven::OUT2), "the interrupt passes it");
    model.lines(Seen::RI);
    model.lines(Seen::empty());
    port.lines();
    assert_eq!((port.counters().rng, port.counters().dsr), (1, 1));
}

#[test]
fn a_break_is_sent_and_survives_new_settings() {
    let (model, mut port) = open(raw);
    port.set_break(true);
    let termios = *port.termios();
    port.set_termios(&termios);
    assert_ne!(model.0.borrow().line & crtos_tty::uart::SEND_BREAK, 0);
    port.set_break(false);
    assert_eq!(model.0.borrow().line & crtos_tty::uart::SEND_BREAK, 0);
}

#[test]
fn switching_to_lines_makes_one_of_what_is_there() {
    let (model, mut port) = open(raw);
    arrive(&model, &mut port, b"part");
    let canonical = Termios { local: linux::ICANON, ..*port.termios() };
    port.set_termios(&canonical);
    assert_eq!(read(&mut port), Some(b"part".to_vec()));
    arrive(&model, &mut port, b"x\x04y");
    assert_eq!(port.readable(), 1);
    let bytes = Termios { local: 0, ..canonical };
    port.set_termios(&bytes);
    assert_eq!(read(&mut port), Some(b"x\0y".to_vec()));
}

#[test]
fn a_line_without_end_leaves_room_for_it() {
    let (model, mut port) = open(|termios| termios.local &= !linux::ECHO);
    arrive(&model, &mut port, &[b'x'; 5000]);
    assert_eq!(read(&mut port), None);
    arrive(&model, &mut port, b"\n");
    let line = read(&mut port).unwrap_or_default();
    assert!(line.len() == 4096 && line.ends_with(b"x\n"));
    assert_eq!(port.counters().buf_overrun, 5000 - 4095);
}

/// Of why it interrupts, of the byte, and of why it does then; an answer is sent besides.
#[test]
fn an_interrupt_for_a_byte_takes_three_accesses() {
    let (model, mut port) = open(raw);
    steps(&mut port);
    model.arrive(b"a");
    assert_eq!(accesses(&model, || assert!(!port.serve())), 3);
    assert_eq!(read(&mut port), Some(b"a".to_vec()));
    let (model, mut port) = open(|termios| termios.local = linux::ECHO);
    steps(&mut port);
    model.arrive(b"a");
    assert_eq!(accesses(&model, || assert!(!port.serve())), 4);
    model.carry(1);
    assert_eq!((&*model.0.borrow().sent, interrupts(&model)), (&b"a"[..], false));
}

#[test]
fn an_interrupt_tells_of_faults_and_modem_lines() {
    let (model, mut port) = open(|termios| {
        raw(termios);
        termios.input = linux::PARMRK | linux::INPCK;
    });
    model.arrive(b"a");
    model.arrive_with(b'b', Status::PARITY);
    model.arrive(b"c");
    model.lines(Seen::CTS | Seen::DCD);
    while port.serve() {}
    assert!(!interrupts(&model));
    assert_eq!(read(&mut port), Some(b"a\xff\0bc".to_vec()));
    assert_eq!((port.counters().parity, port.counters().dsr), (1, 1));
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(Vec<u8>),
    Write(Vec<u8>),
    Carry(usize),
    Read(usize),
    Interrupt,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 1..16);
    let event = prop_oneof![
        bytes().prop_map(Event::Arrive),
        bytes().prop_map(Event::Write),
        (1..20usize).prop_map(Event::Carry),
        (1..40usize).prop_map(Event::Read),
        Just(Event::Interrupt),
        Just(Event::Interrupt),
    ];
    proptest::collection::vec(event, 0..300)
}

proptest! {
    /// With raw settings, bytes go through in both directions, whole and in order, by steps alone
    /// where it was silenced. An interrupt's work is bounded, and what follows it is a new edge.
    #[test]
    fn bytes_go_through(events in events(), is_silent: bool) {
        let (model, mut port) = open(raw);
        if is_silent {
            port.silence();
        }
        let (mut arrived, mut got, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Arrive(bytes) => {
                    steps(&mut port);
                    model.arrive(&bytes);
                    arrived.extend(bytes);
                }
                Event::Write(bytes) => {
                    let taken = port.write(&bytes);
                    written.extend(&bytes[..taken]);
                }
                Event::Carry(count) => model.carry(count),
                Event::Read(count) => {
                    let mut bytes = vec![0; count];
                    let taken = port.read(&mut bytes);
                    got.extend(&bytes[..taken.count]);
                }
                Event::Interrupt => {
                    let mut left = STEPS;
                    let accesses = accesses(&model, || {
                        while left > 0 && port.serve() {
                            left -= 1;
                        }
                    });
                    prop_assert!(left == 0 || !interrupts(&model));
                    // Of each byte its status and itself; of each step's end, of room, of modem
                    // lines or the line's status, and of what is enabled.
                    prop_assert!(accesses <= 2 * 16 + 16 + 4 * STEPS);
                }
            }
        }
        let mut sent = std::mem::take(&mut model.0.borrow_mut().sent);
        sent.extend(self::sent(&model, &mut port));
        prop_assert_eq!(sent, written);
        got.extend(read(&mut port).unwrap_or_default());
        prop_assert_eq!(got, arrived);
    }

    /// Whatever comes, with whatever settings, nothing is out of bounds, and no read finds more
    /// than it is told.
    #[test]
    fn any_settings_and_bytes_are_survived(
        rounds in proptest::collection::vec(
            (any::<[u32; 4]>(), any::<[u8; 19]>(), proptest::collection::vec(any::<u8>(), 0..200)),
            1..20,
        ),
    ) {
        let (model, mut port) = open(|_| {});
        for ([input, output, control, local], characters, bytes) in rounds {
            let termios =
                Termios { input, output, control, local, characters, ..*port.termios() };
            port.set_termios(&termios);
            for chunk in bytes.chunks(16) {
                model.arrive(chunk);
                let _ = port.write(chunk);
                let _more = (0..STEPS).all(|_| port.step());
                model.carry(16);
            }
            let readable = port.readable() as usize;
            let mut to = [0; 37];
            let taken = port.read(&mut to);
            prop_assert!(taken.count <= readable.min(37));
            port.take_wake();
        }
    }
}
