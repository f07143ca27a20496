// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the kernel by itself on the machine it runs on: built in by the feature `self-test`,
//! run at boot. Each test logs a line with what it measured; a failure stops the kernel.

use crate::arch::interrupts::InService;
use crate::arch::{UserContext, apic, enter_user};
use crate::devices::interrupts;
use crate::mm::frames::{PRIVATE, SHARED};
use crate::mm::heap;
use crate::mm::space::{
    Access, AddressSpace, FaultError, Kind, Lock, Map, MapError, Move, Piece, Placement,
    Protection, Revoke, Revoked, Shared,
};
use crate::task::{
    Mutex, Scheduling, Spawn, Thread, Timer, WaitError, WaitQueue, WakeReason, block, current,
    exit, prepare, sleep_until, spawn,
};
use crate::time::{Nanos, now};
use crate::{info, sync::SpinLock};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crtos_abi::UserAddr;

const MS: Nanos = Nanos::from_millis(1);

/// Runs all tests in the calling thread.
pub fn run() {
    info!("self-test: start");
    current().set_scheduling(level(40));
    timers();
    devices();
    sleeping();
    priorities();
    inheritance();
    queues();
    slices();
    spaces();
    endings();
    exhaustion();
    programs();
    current().set_scheduling(Scheduling::ORDINARY);
    info!("self-test: passed");
}

fn level(priority: u32) -> Scheduling {
    match Scheduling::fifo(priority) {
        Some(scheduling) => scheduling,
        None => panic!("no such priority"),
    }
}

fn start(name: &str, scheduling: Scheduling, body: impl FnOnce() + Send + 'static) -> Arc<Thread> {
    match spawn(Spawn { name, scheduling, ..Default::default() }, body) {
        Ok(thread) => thread,
        Err(_) => panic!("no room for a thread"),
    }
}

fn spin_while(flag: &AtomicBool) {
    while flag.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
}

fn timers() {
    static FIRED: AtomicU64 = AtomicU64::new(0);
    let waiter = current().arc();
    let Ok(timer) = Timer::new(Box::new(move || {
        FIRED.store(now().0, Ordering::Relaxed);
        waiter.wake();
    })) else {
        panic!("no timer");
    };
    let mut late = (u64::MAX, 0);
    for _ in 0..20 {
        let deadline = now() + MS;
        timer.arm(deadline);
        assert_eq!(block(None), WakeReason::Woken);
        let lateness = FIRED.load(Ordering::Relaxed) - deadline.0;
        late = (late.0.min(lateness), late.1.max(lateness));
    }
    timer.arm(now() + MS);
    assert!(timer.cancel() && timer.deadline().is_none());
    assert_eq!(block(Some(now() + MS + MS)), WakeReason::Timeout);
    info!("self-test: timer callbacks {} to {} ns late", late.0, late.1);
}

fn devices() {
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    static SILENCED: AtomicU32 = AtomicU32::new(0);
    struct Counts;
    impl interrupts::Handler for Counts {
        fn interrupt(&self, _: InService) {
            HANDLED.fetch_add(1, Ordering::Relaxed);
        }
        fn silence(&self) -> bool {
            SILENCED.fetch_add(1, Ordering::Relaxed);
            true
        }
    }
    let handler = Arc::new(Counts);
    let register = || match interrupts::register("test", handler.clone()) {
        Some(vector) => (vector.number(), vector),
        None => panic!("no vector"),
    };
    let (vector, given) = register();
    let counts = || [&HANDLED, &SILENCED].map(|counter| counter.load(Ordering::Relaxed));
    (0..5).for_each(|_| apic::interrupt_self(vector));
    assert_eq!(counts(), [5, 0]);
    // Within one period or two.
    (0..3 * interrupts::MOST).for_each(|_| apic::interrupt_self(vector));
    let [handled, silenced] = counts();
    assert!(silenced == 1 && handled <= 2 * interrupts::MOST);
    interrupts::restart(vector);
    apic::interrupt_self(vector);
    assert_eq!(counts(), [handled + 1, 1]);
    // What has gone is called no more, and its vector is another's.
    drop(given);
    apic::interrupt_self(vector);
    assert_eq!((counts(), Arc::strong_count(&handler)), ([handled + 1, 1], 1));
    for _ in 0..100 {
        assert_eq!(register().0, vector);
    }
    info!("self-test: a device that interrupts all the time is silenced after {handled}");
}

fn sleeping() {
    let mut late = (u64::MAX, 0);
    for _ in 0..50 {
        let deadline = now() + MS;
        sleep_until(deadline);
        let lateness = now().0 - deadline.0;
        late = (late.0.min(lateness), late.1.max(lateness));
    }
    current().wake();
    sleep_until(now() + MS);
    assert_eq!(block(Some(now() + MS)), WakeReason::Woken);
    assert_eq!(block(Some(now() + MS)), WakeReason::Timeout);
    info!("self-test: threads wake {} to {} ns after their deadline", late.0, late.1);
}

fn priorities() {
    static ORDER: SpinLock<Vec<u32>> = SpinLock::new(Vec::new());
    let note = |n| ORDER.lock().push(n);
    start("higher", level(50), move || note(1));
    note(2);
    let lower = start("lower", level(30), move || note(4));
    start("lowest", level(20), move || note(5));
    note(3);
    sleep_until(now() + MS);
    assert_eq!(*ORDER.lock(), [1, 2, 3, 4, 5]);
    drop(lower);
    let spinner = start("spinner", level(10), || {
        let end = now() + Nanos::from_millis(20);
        while now() < end {}
    });
    let before = now();
    sleep_until(before + MS);
    assert!(now() - before < Nanos::from_millis(15), "a lower level was not preempted");
    spinner.set_scheduling(level(41));
    assert!(now() - before > Nanos::from_millis(15), "a raised level did not preempt");
}

fn inheritance() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    static OUTER: Mutex<u32> = Mutex::new(0);
    static SPIN: AtomicBool = AtomicBool::new(true);
    let done = Arc::new(AtomicU32::new(0));
    let holder = start("holder", level(10), || {
        let mut value = LOCK.lock();
        sleep_until(now() + MS);
        *value += 1;
    });
    sleep_until(now() + Nanos::from_micros(100));
    let middle = start("middle", level(11), || {
        let _outer = OUTER.lock();
        *LOCK.lock() += 1;
    });
    sleep_until(now() + Nanos::from_micros(200));
    start("hog", level(20), || spin_while(&SPIN));
    let count = done.clone();
    start("high", level(39), move || {
        *OUTER.lock() += 1;
        count.store(1, Ordering::Relaxed);
    });
    sleep_until(now() + Nanos::from_micros(200));
    assert_eq!(holder.effective_level(), level(39).level);
    sleep_until(now() + Nanos::from_millis(3));
    assert_eq!(done.load(Ordering::Relaxed), 1, "a hog kept a higher thread from a lock");
    SPIN.store(false, Ordering::Relaxed);
    sleep_until(now() + MS);
    assert_eq!((*LOCK.lock(), *OUTER.lock()), (2, 1));
    assert_eq!(middle.effective_level(), level(11).level);
}

fn queues() {
    static QUEUE: WaitQueue = WaitQueue::new();
    static READY: AtomicU32 = AtomicU32::new(0);
    static ORDER: SpinLock<Vec<u32>> = SpinLock::new(Vec::new());
    let take =
        || READY.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).ok();
    for (n, priority) in [(3, 10), (1, 30), (2, 20), (4, 10)] {
        start("waiter", level(priority), move || {
            assert!(QUEUE.wait_until(None, |_| false, take).is_ok());
            ORDER.lock().push(n);
        });
    }
    sleep_until(now() + MS);
    for _ in 0..4 {
        READY.fetch_add(1, Ordering::Relaxed);
        assert_eq!(QUEUE.wake(1), 1);
        sleep_until(now() + MS);
    }
    assert_eq!(*ORDER.lock(), [1, 2, 3, 4]);
    assert_eq!(QUEUE.wait_until(Some(now() + MS), |_| false, take), Err(WaitError::Timeout));
    assert_eq!(QUEUE.wait_until(None, |_| true, take), Err(WaitError::Interrupted));
    assert!(QUEUE.is_empty());
}

fn slices() {
    static GO: AtomicBool = AtomicBool::new(true);
    let hogs: Vec<_> =
        (0..3).map(|_| start("hog", Scheduling::ORDINARY, || spin_while(&GO))).collect();
    sleep_until(now() + Nanos::from_millis(120));
    GO.store(false, Ordering::Relaxed);
    sleep_until(now() + Nanos::from_millis(1));
    let times: Vec<u64> = hogs.iter().map(|hog| hog.run_time().0 / 1000).collect();
    let switches: Vec<u64> = hogs.iter().map(|hog| hog.switches()).collect();
    info!("self-test: three hogs ran {times:?} us in {switches:?} turns");
    assert!(times.iter().all(|&time| time > 25_000));
}

struct Ranges(Arc<SpinLock<Vec<(UserAddr, u64)>>>);

impl Revoke for Ranges {
    fn revoke(&self, pages: Revoked) {
        self.0.lock().push((pages.start, pages.length));
    }

    fn is_told(&self) -> bool {
        true
    }

    fn read(&self, _: &Piece) -> Option<u64> {
        None
    }

    fn share(&self, _: &Shared) -> Option<i64> {
        None
    }
}

fn map(
    space: &AddressSpace,
    placement: Placement,
    length: u64,
    kind: Kind,
) -> Result<UserAddr, MapError> {
    let protection = Protection::READ | Protection::WRITE;
    space.map(Map { kind, ..Map::private(placement, length, protection) })
}

fn spaces() {
    const BLOCK: UserAddr = UserAddr::new(0x4000_0000);
    const HEAP: UserAddr = UserAddr::new(0x1000_0000);
    const SHADOWS: UserAddr = UserAddr::new(0x7e00_0000_0000);
    const KERNELS: UserAddr = UserAddr::new(0xffff_8000_0000_0000);
    const LAST: UserAddr = UserAddr::new(u64::MAX);
    let before = (PRIVATE.usage().1, SHARED.usage().1);
    let ranges = Arc::new(SpinLock::new(Vec::new()));
    let Ok(space) = AddressSpace::new(Box::new(Ranges(ranges.clone())), None) else {
        panic!("no space")
    };
    let anywhere = Placement::Anywhere { hint: UserAddr::NULL };
    let Ok(a) = map(&space, anywhere, 0x10_0000, Kind::Anonymous) else { panic!("no mapping") };
    // Copies across pages; what was never written reads as zero.
    let text = [0x5a; 5000];
    assert_eq!(space.write(a + 0xf00, &text), Ok(()));
    let mut back = [1; 5002];
    assert_eq!(space.read(a + 0xeff, &mut back), Ok(()));
    assert!(back[0] == 0 && back[5001] == 0 && back[1..5001] == text);
    assert_eq!(space.usage(), (0x10_0000, 0x3000));
    assert!(space.write(a - 1, &text).is_err() && space.read(UserAddr::NULL, &mut back).is_err());
    assert!(space.read(LAST - 10, &mut back).is_err() && space.read(KERNELS, &mut back).is_err());
    // Strings.
    assert_eq!(space.write(a + 0x4ffe, b"ab\0"), Ok(()));
    assert_eq!(space.read_cstr(a + 0x4ffe, &mut back), Ok(Some(2)));
    assert_eq!(space.read_cstr(a + 0xf00, &mut back[..100]), Ok(None));
    // Words.
    assert_eq!(space.update_u32(a + 8, |word| Some(word + 7)), Ok(0));
    assert_eq!(space.update_u32(a + 8, |_| None), Ok(7));
    assert_eq!(space.load_u32(a + 8), Ok(7));
    assert!(space.load_u32(a + 9).is_err());
    // Rights.
    assert_eq!(space.protect(a, 0x1000, Protection::READ), Ok(()));
    assert!(space.write(a, &text[..1]).is_err() && space.load_u32(a + 8) == Ok(7));
    assert_eq!(space.resolve(a, Access::Write), Err(FaultError::Protected));
    assert_eq!(space.resolve(a, Access::Execute), Err(FaultError::Protected));
    assert_eq!(space.protect(a, 0x1000, Protection::empty()), Ok(()));
    assert!(space.load_u32(a + 8).is_err());
    assert_eq!(space.protect(a, 0x1000, Protection::READ | Protection::WRITE), Ok(()));
    assert_eq!(space.load_u32(a + 8), Ok(7));
    // Exposed pages are revoked, others are not.
    assert!(space.expose(a + 0x1000, Access::Read).is_ok_and(|page| page.writable));
    assert_eq!(space.protect(a, 0x8000, Protection::READ), Ok(()));
    assert_eq!(core::mem::take(&mut *ranges.lock()), [(a + 0x1000, 0x1000)]);
    assert_eq!(space.unmap(a, 0x10_0000), Ok(()));
    assert_eq!(core::mem::take(&mut *ranges.lock()), [(a + 0x1000, 0x1000)]);
    assert_eq!(space.usage(), (0, 0));
    // Large pages, split by a partial unmap.
    let Ok(large) = map(&space, anywhere, 0x20_0000, Kind::Large) else {
        panic!("no large mapping")
    };
    assert_eq!(space.write(large + 0x12_3456, &text), Ok(()));
    assert_eq!(space.usage().1, 0x20_0000);
    assert_eq!(space.unmap(large, 0x10_0000), Ok(()));
    assert_eq!(space.usage().1, 0x10_0000);
    assert_eq!(space.read(large + 0x12_3456, &mut back[..5000]), Ok(()));
    assert!(back[..5000] == text);
    // Moves keep the content.
    assert_eq!(
        map(&space, Placement::Fixed(large + 0x20_0000), 0x1000, Kind::Anonymous),
        Ok(large + 0x20_0000)
    );
    let Ok(moved) = space.remap(large + 0x10_0000, 0x10_0000, 0x20_0000, Move::Anywhere) else {
        panic!("no move")
    };
    assert_eq!(space.read(moved + 0x2_3456, &mut back[..5000]), Ok(()));
    assert!(back[..5000] == text && space.load_u32(large + 0x10_0000).is_err());
    assert_eq!(space.populate(moved, 0x20_0000), Ok(()));
    // A page in the way of a large one: 2 MiB are cleared once, not for each page.
    let block = Placement::Fixed(BLOCK);
    assert_eq!(map(&space, block, 0x20_0000, Kind::Anonymous), Ok(BLOCK));
    assert_eq!(space.write(BLOCK + 0x1f_f000, &text[..1]), Ok(()));
    let time = now();
    assert_eq!(space.populate(BLOCK, 0x20_0000), Ok(()));
    assert!(now() - time < Nanos::from_millis(20), "a block with a page took {:?}", now() - time);
    assert_eq!(space.unmap(BLOCK, 0x20_0000), Ok(()));
    // The break.
    space.set_brk_start(HEAP + 0x123);
    assert_eq!(space.brk(UserAddr::NULL), HEAP + 0x123);
    assert_eq!(space.brk(HEAP + 0x10_0000), HEAP + 0x10_0000);
    assert_eq!(space.zero(HEAP + 0x1000, 0x2000), Ok(()));
    assert_eq!(space.brk(HEAP + 0x1001), HEAP + 0x1001);
    assert!(space.load_u32(HEAP + 0x2000).is_err() && space.load_u32(HEAP + 0x1000) == Ok(0));
    // Forbidden places.
    for place in [UserAddr::NULL, SHADOWS] {
        let mapped = map(&space, Placement::Fixed(place), 0x1000, Kind::Anonymous);
        assert_eq!(mapped, Err(MapError::Denied));
    }
    assert_eq!(
        map(&space, Placement::NoReplace(moved), 0x1000, Kind::Anonymous),
        Err(MapError::Exists)
    );
    // What must be present and cannot be is not mapped; MAP_POPULATE is only a wish.
    let more = SHARED.usage().1 * 4096 + 0x20_0000;
    space.lock_future(Lock::Present);
    let usage = space.usage();
    assert_eq!(map(&space, anywhere, more, Kind::Anonymous), Err(MapError::NoMemory));
    assert_eq!(space.usage(), usage);
    let time = now();
    drop(space);
    info!("self-test: a space was freed in {} us", (now() - time).0 / 1000);
    let after = (PRIVATE.usage().1, SHARED.usage().1);
    // The heap may have taken a block, or given one back.
    assert!(
        after.1 == before.1 && matches!(after.0.abs_diff(before.0), 0 | 512),
        "{before:?} {after:?}"
    );
}

/// Threads whose body does not return leave nothing on the heap.
fn endings() {
    fn ends() {
        exit()
    }
    let round = || {
        let what = Spawn { name: "ends", scheduling: level(50), ..Default::default() };
        let Ok(thread) = prepare(what, ends) else { panic!("no room for a thread") };
        crate::task::start(&thread);
        drop(thread);
        // The reaper has ordinary priority.
        sleep_until(now() + MS);
    };
    round();
    let before = heap::usage().1;
    for _ in 0..20 {
        round();
    }
    assert_eq!(heap::usage().1, before, "threads that ended left something on the heap");
    info!("self-test: threads that end leave nothing on the heap");
}

/// A program that spreads its pages runs out of tables, not the kernel out of memory.
fn exhaustion() {
    const APART: u64 = 1 << 30;
    let before = (PRIVATE.usage().1, SHARED.usage().1);
    let Ok(space) = AddressSpace::new(Box::new(Ranges(Arc::new(SpinLock::new(Vec::new())))), None)
    else {
        panic!("no space")
    };
    let first = Placement::Fixed(UserAddr::new(APART));
    let Ok(start) = map(&space, first, 0x7000_0000_0000, Kind::Anonymous) else {
        panic!("no mapping")
    };
    let mut pages = 0;
    let end = loop {
        match space.resolve(start + pages * APART, Access::Write) {
            Ok(_) => pages += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(end, FaultError::NoMemory);
    assert!(spawn(Spawn::default(), || ()).is_ok(), "the kernel has no memory left");
    assert_eq!(space.unmap(start, 0x7000_0000_0000), Ok(()));
    assert_eq!(space.usage(), (0, 0));
    drop(space);
    sleep_until(now() + MS);
    let after = (PRIVATE.usage().1, SHARED.usage().1);
    info!(
        "self-test: {pages} pages 1 GiB apart used up the tables; free frames {before:?}, {after:?}"
    );
    assert!(after.1 == before.1 && after.0 + 1024 > before.0);
}

/// Where the programs' code lies.
const CODE: UserAddr = UserAddr::new(0x40_0000);
/// Where they count: eight bytes each, then eight for failures.
const COUNTS: UserAddr = UserAddr::new(0x50_0000);

core::arch::global_asm!(
    // RDI = where to count, RSI = a value of its own. Counts rounds in which its registers kept
    // their values.
    ".globl self_test_program",
    ".globl self_test_program_end",
    "self_test_program:",
    "movq xmm7, rsi",
    "movq xmm0, rsi",
    "vinsertf128 ymm7, ymm7, xmm0, 1",
    "2:",
    "vextractf128 xmm1, ymm7, 1",
    "movq rax, xmm1",
    "cmp rax, rsi",
    "jne 3f",
    "mov rax, fs:[0]",
    "cmp rax, rsi",
    "jne 3f",
    "mov rax, gs:[0]",
    "cmp rax, rsi",
    "jne 3f",
    "lock inc qword ptr [rdi]",
    "jmp 2b",
    "3:",
    "lock inc qword ptr [rdi + 8]",
    "jmp 2b",
    "self_test_program_end:",
);

/// Programs share the CPU, each in its own space, with its own registers; they never leave.
fn programs() {
    unsafe extern "C" {
        static self_test_program: u8;
        static self_test_program_end: u8;
    }
    let (from, to) = (&raw const self_test_program, &raw const self_test_program_end);
    // SAFETY: the code between the labels is part of the image.
    let code = unsafe { core::slice::from_raw_parts(from, to as usize - from as usize) };
    let mut spaces = Vec::new();
    for n in 1..=3u64 {
        let Ok(space) =
            AddressSpace::new(Box::new(Ranges(Arc::new(SpinLock::new(Vec::new())))), None)
        else {
            panic!("no space")
        };
        let rights = Protection::READ | Protection::EXECUTE;
        let text = Map::private(Placement::Fixed(CODE), 4096, rights);
        assert_eq!(space.map(text), Ok(CODE));
        assert_eq!(space.write_forced(CODE, code), Ok(()));
        assert_eq!(map(&space, Placement::Fixed(COUNTS), 0x3000, Kind::Anonymous), Ok(COUNTS));
        assert_eq!(space.write(COUNTS + 0x1000, &n.to_le_bytes()), Ok(()));
        let start = UserContext::of_start(CODE, COUNTS + 0x3000);
        let context = UserContext { rdi: COUNTS.get(), rsi: n, ..start };
        let spawned = spawn(
            Spawn {
                name: "program",
                scheduling: Scheduling::ORDINARY,
                space: Some(space.clone()),
                ..Default::default()
            },
            move || enter_user(&context, COUNTS + 0x1000, COUNTS + 0x1000),
        );
        assert!(spawned.is_ok());
        spaces.push(space);
    }
    let counts = |offset: u64| -> Vec<u64> {
        let mut word = [0; 8];
        let mut each = |space: &Arc<AddressSpace>| {
            assert_eq!(space.read(COUNTS + offset, &mut word), Ok(()));
            u64::from_le_bytes(word)
        };
        spaces.iter().map(&mut each).collect()
    };
    sleep_until(now() + Nanos::from_millis(100));
    let (first, failures) = (counts(0), counts(8));
    sleep_until(now() + Nanos::from_millis(100));
    let second = counts(0);
    info!("self-test: programs counted {first:?}, then {second:?}");
    assert!(first.iter().zip(&second).all(|(a, b)| *a > 0 && b > a));
    assert_eq!(failures, [0, 0, 0]);
}
