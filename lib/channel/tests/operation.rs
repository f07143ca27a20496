// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel encodes, the shadow decodes.

use crtos_abi::{
    UserAddr, channel as raw,
    ids::{Pid, Tid},
};
use crtos_channel::{
    Encoded, Heritage, Operation, Slot,
    operation::{
        DecodeError, Deed, DescriptorLimits, DescriptorsInUse, Device, Disposition, FileStatus,
        FirstMade, Room, Scheduling, Source, lends, name,
    },
};
use crtos_syscalls::{
    cpulist::CpuList,
    topology::{File, Kind},
};
use proptest::prelude::*;

fn disposition() -> impl Strategy<Value = Disposition> {
    prop_oneof![Just(Disposition::Default), Just(Disposition::Ignore), Just(Disposition::Forward)]
}

fn device() -> impl Strategy<Value = Device> {
    prop_oneof![Just(Device::Null), Just(Device::Zero), Just(Device::Full)]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![Just(Deed::Schedule), Just(Deed::Limit), Just(Deed::Trace)]
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        any::<i32>().prop_map(Source::Descriptor),
        (1_u64 << 32..1 << 47).prop_map(|address| Source::Mirror(UserAddr::new(address))),
    ]
}

fn file() -> impl Strategy<Value = File> {
    prop_oneof![
        Just(File::Cpus(Kind::Online)),
        Just(File::Cpus(Kind::Possible)),
        Just(File::Cpus(Kind::Present)),
        any::<u16>().prop_map(File::NodeList),
        any::<u16>().prop_map(File::NodeMask),
    ]
}

fn scheduling() -> impl Strategy<Value = Scheduling> {
    (any::<u8>(), any::<u8>(), -20_i8..20, any::<bool>()).prop_map(
        |(policy, priority, nice, reset_on_fork)| Scheduling {
            policy,
            priority,
            nice,
            reset_on_fork,
        },
    )
}

fn address() -> impl Strategy<Value = UserAddr> {
    any::<u64>().prop_map(UserAddr::new)
}

fn operation() -> impl Strategy<Value = Operation<'static>> {
    use Operation::*;
    let plain = prop_oneof![
        Just(ExitThread),
        Just(BlockedSignals),
        Just(Refuse),
        Just(Operation::DescriptorLimits),
        Just(Operation::MemoryLimits),
        (any::<i32>(), any::<u32>()).prop_map(|(fd, from)| Operation::FileName { fd, from }),
        (deed(), 0..raw::SLOTS, 1..=i32::MAX as u32).prop_map(|(deed, slot, pid)| May {
            deed,
            slot: Slot::new(slot).unwrap(),
            pid: Pid::new(pid).unwrap(),
        }),
        any::<i32>().prop_map(|fd| Operation::Socket { fd }),
        any::<u64>().prop_map(|bytes| Locked { bytes }),
        any::<(u32, u32)>().prop_map(|(fd, number)| KeepSuccessor { fd, number }),
        any::<u32>().prop_map(|number| TakeSuccessor { number }),
    ];
    let processes = prop_oneof![
        any::<i32>().prop_map(|status| Exit { status }),
        any::<(u32, bool)>().prop_map(|(signal, is_starved)| ExitBySignal { signal, is_starved }),
        (any::<u64>(), any::<u32>())
            .prop_map(|(count, number)| MakeThreads { count, heritage: Heritage::new(number) }),
        (address(), any::<u64>()).prop_map(|(to, room)| Startup { to, room }),
        (any::<u64>(), address()).prop_map(|(flags, pidfd)| Fork { flags, pidfd }),
        (any::<([u64; 4], bool)>(), proptest::option::of(0..1u32 << 31)).prop_map(
            |(([path, arguments, environment, blocked], in_realm_only), descriptor)| {
                let [path, arguments, environment] =
                    [path, arguments, environment].map(UserAddr::new);
                Execute { path, arguments, environment, blocked, in_realm_only, descriptor }
            }
        ),
        (any::<u32>(), scheduling())
            .prop_map(|(tid, scheduling)| SetScheduling { tid: Tid::new(tid), scheduling }),
        (any::<u32>(), disposition(), any::<u64>())
            .prop_map(|(signal, disposition, flags)| SetDisposition { signal, disposition, flags }),
        any::<u64>().prop_map(|signals| ForwardSignals { signals }),
        any::<u32>().prop_map(|tid| Operation::Scheduling { tid: Tid::new(tid) }),
        any::<u32>().prop_map(|tid| Operation::Limits { tid: Tid::new(tid) }),
        any::<u32>().prop_map(|capability| IsCapable { capability }),
    ];
    let files = prop_oneof![
        (address(), address(), any::<u64>()).prop_map(|(to, from, length)| Copy {
            to,
            from,
            length
        }),
        any::<i32>().prop_map(|fd| Status { fd }),
        (source(), 0..1u64 << 17, any::<([u64; 2], [u64; 3])>()).prop_map(
            |(from, length, ([offset, pages], identity))| Read {
                from,
                offset,
                length,
                pages,
                identity
            }
        ),
        (source(), address(), any::<[u64; 3]>()).prop_map(|(from, mirror, identity)| Keep {
            from,
            mirror,
            identity
        }),
        address().prop_map(|mirror| Operation::Registers { mirror }),
        (address(), any::<(u64, u64, u32, bool, bool)>()).prop_map(
            |(mirror, (page, places, count, write, all))| Operation::Share {
                mirror,
                page,
                places,
                count,
                write,
                all
            }
        ),
        address().prop_map(|mirror| LetGo { mirror }),
        address().prop_map(|mirror| Segment { mirror }),
        (file(), any::<(bool, u32, [u64; 4])>()).prop_map(|(file, (alone, flags, realm))| {
            OpenTopology { file, alone, flags, realm: CpuList(realm) }
        }),
        any::<u32>().prop_map(|from| Operation::DescriptorsInUse { from }),
        any::<(u32, u64, u64)>().prop_map(|(first, place, remove)| PlaceDescriptors {
            first,
            place,
            remove
        }),
        (device(), any::<(u32, u32)>()).prop_map(|(device, (flags, fd))| OpenDevice {
            device,
            flags,
            fd
        }),
        (device(), address()).prop_map(|(device, to)| DeviceStatus { device, to }),
    ];
    prop_oneof![plain, processes, files]
}

/// A word that is likelier to be one that means something.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, any::<u64>(), any::<u32>().prop_map(u64::from)]
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(operation in operation()) {
        let mut room = Room::default();
        let encoded = operation.encode(&mut room);
        prop_assert_eq!(Operation::decode(&encoded), Ok(operation));
        prop_assert!(name(encoded.op).is_some());
    }

    #[test]
    fn a_system_call_s_arguments_stay_where_they_are(number: u32, arguments: [u64; 6]) {
        let operation = Operation::SystemCall { number, arguments: &arguments };
        let mut room = Room::default();
        let encoded = operation.encode(&mut room);
        prop_assert!(std::ptr::eq(encoded.args, &arguments));
        prop_assert_eq!(Operation::decode(&encoded), Ok(operation));
    }

    #[test]
    fn any_words_are_an_operation_or_an_error(
        op in prop_oneof![0..32_u32, any::<u32>()],
        nr: u32,
        args in proptest::array::uniform6(word()),
    ) {
        match Operation::decode(&Encoded { op, nr, args: &args }) {
            Ok(operation) => {
                let mut room = Room::default();
                let encoded = operation.encode(&mut room);
                prop_assert_eq!(encoded.op, op);
                prop_assert_eq!(Operation::decode(&encoded), Ok(operation));
            }
            Err(DecodeError::UnknownOperation(unknown)) => {
                prop_assert_eq!(unknown, op);
                prop_assert_eq!(name(op), None);
            }
            Err(DecodeError::BadArgument) => prop_assert!(name(op).is_some()),
        }
    }

    #[test]
    fn results_arrive_as_they_were_sent(
        scheduling in scheduling(),
        most: u32,
        devices: bool,
        near: u32,
        next in 0..1_u32 << 31,
        slot in 0..raw::SLOTS,
        id in 1..1_u32 << 31,
        word: i64,
    ) {
        prop_assert!((scheduling.to_word() as i64) >= 0);
        prop_assert_eq!(Scheduling::from_word(scheduling.to_word()), scheduling);
        let limits = DescriptorLimits { most, devices };
        prop_assert!(limits.to_word() >= 0);
        prop_assert_eq!(DescriptorLimits::from_word(limits.to_word()), limits);
        let in_use = DescriptorsInUse { near, next };
        prop_assert!(in_use.to_word() >= 0);
        prop_assert_eq!(DescriptorsInUse::from_word(in_use.to_word()), in_use);
        let first = Slot::new(slot).zip(Tid::new(id)).map(|(slot, tid)| FirstMade { slot, tid });
        let word_of_first = first.map_or(u64::MAX, FirstMade::to_word);
        prop_assert!((word_of_first as i64) >= 0);
        prop_assert_eq!(FirstMade::from_word(word_of_first), first);
        // Whatever Linux says is a value, or none.
        FirstMade::from_word(word as u64);
        Scheduling::from_word(word as u64);
        DescriptorLimits::from_word(word);
        DescriptorsInUse::from_word(word);
    }
}

#[test]
fn what_a_status_says() {
    let mode = 0o100_644 | raw::STATUS_EMPTY | raw::STATUS_TRUSTED;
    let status = FileStatus::from_words(&[1, 2, 3, 4, 5 << 30 | 6, mode]);
    assert_eq!((status.identity, status.size, status.changed), ([1, 2, 3], 4, [5, 6]));
    assert_eq!(status.mode, 0o100_644);
    assert!(status.is_empty && status.is_trusted && !status.is_readable);
}

/// A number of a successor may be another user's as soon as an operation is given up.
#[test]
fn numbers_of_successors_are_lent() {
    let ops =
        [Operation::KeepSuccessor { fd: 3, number: 7 }, Operation::TakeSuccessor { number: 7 }];
    for operation in ops {
        assert!(lends(operation.encode(&mut Room::default()).op));
    }
    assert!(!lends(Operation::Locked { bytes: 0 }.encode(&mut Room::default()).op));
}
