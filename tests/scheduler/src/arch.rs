// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors: the CPU that goes on just now is [`percpu::this`]. Its interrupts are off, but in
//! [windows](percpu::interrupt_window).

pub use interrupts::InterruptsOff;

mod interrupts {
    pub struct InterruptsOff;

    impl InterruptsOff {
        pub fn take() -> Self {
            Self
        }

        pub fn were_on(&self) -> bool {
            false
        }
    }

    impl Drop for InterruptsOff {
        fn drop(&mut self) {}
    }
}

pub mod cpu {
    pub fn disable_interrupts() -> bool {
        false
    }
}

pub mod apic {
    use crate::time::Nanos;

    pub fn set_timer(deadline: Option<Nanos>) {
        super::percpu::this().set_timer(deadline.unwrap_or(Nanos::MAX));
    }
}

pub mod context {
    /// Registers and stacks are not simulated.
    ///
    /// # Safety
    /// Any values will do.
    #[allow(unsafe_code, reason = "the kernel's is unsafe")]
    pub unsafe fn switch_stacks(_: *mut u64, _: *mut u64) {}
}

pub mod percpu {
    use core::ptr;
    use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
    };
    use std::sync::OnceLock;

    use crtos_abi::ids::RealmCpu;

    use crate::{
        machine,
        task::{
            Thread,
            scheduler::{self, Runner},
        },
        time::Nanos,
    };

    pub struct PerCpu {
        pub index: RealmCpu,
        pub runner: Once,
        needs_resched: AtomicBool,
        /// An interrupt of another CPU is under way.
        is_interrupted: AtomicBool,
        /// It does something that is not the doing of the thread that runs.
        in_interrupt: AtomicBool,
        rank: AtomicU32,
        current: AtomicPtr<Thread>,
        timer: AtomicU64,
        /// It is in the middle of something.
        pub is_busy: AtomicBool,
    }

    pub struct Once(OnceLock<Runner>);

    impl Once {
        pub fn call_once(&self, make: impl FnOnce() -> Runner) {
            self.0.get_or_init(make);
        }

        pub fn get(&self) -> Option<&Runner> {
            self.0.get()
        }
    }

    impl PerCpu {
        fn new(index: RealmCpu) -> Self {
            Self {
                index,
                runner: Once(OnceLock::new()),
                needs_resched: AtomicBool::new(false),
                is_interrupted: AtomicBool::new(false),
                in_interrupt: AtomicBool::new(false),
                rank: AtomicU32::new(0),
                current: AtomicPtr::new(ptr::null_mut()),
                timer: AtomicU64::new(u64::MAX),
                is_busy: AtomicBool::new(false),
            }
        }

        pub fn needs_resched(&self) -> bool {
            self.needs_resched.load(Relaxed)
        }

        pub fn set_need_resched(&self) {
            self.needs_resched.store(true, Relaxed);
        }

        pub fn clear_need_resched(&self) {
            self.needs_resched.store(false, Relaxed);
        }

        pub fn ask_look(&self) {
            self.set_need_resched();
        }

        pub fn take_look(&self) -> bool {
            false
        }

        pub fn set_attention(&self, _: bool) {}

        pub fn kick(&self) {
            if !self.needs_resched.swap(true, Relaxed) {
                self.interrupt();
            }
            machine::others_go_on();
        }

        pub fn interrupt(&self) {
            self.is_interrupted.store(true, Relaxed);
        }

        /// Takes the interrupt of another CPU, if one has come.
        pub fn take_interrupt(&self) -> bool {
            self.is_interrupted.swap(false, Relaxed)
        }

        pub fn is_in_interrupt(&self) -> bool {
            self.in_interrupt.load(Relaxed)
        }

        pub fn rank(&self) -> u32 {
            self.rank.load(Relaxed)
        }

        pub fn swap_rank(&self, rank: u32) -> u32 {
            self.rank.swap(rank, Relaxed)
        }

        pub fn current(&self) -> *const Thread {
            self.current.load(Relaxed)
        }

        pub fn set_current(&self, thread: &Thread, _: u64) {
            self.current.store(ptr::from_ref(thread).cast_mut(), Relaxed);
        }

        /// Sets the timer; [`Nanos::MAX`] stops it.
        pub fn set_timer(&self, deadline: Nanos) {
            self.timer.store(deadline.0, Relaxed);
        }

        /// What the timer is set for; [`Nanos::MAX`] if it is not.
        pub fn timer(&self) -> Nanos {
            Nanos(self.timer.load(Relaxed))
        }
    }

    static CPUS: OnceLock<Vec<PerCpu>> = OnceLock::new();
    static THIS: AtomicUsize = AtomicUsize::new(0);

    /// Makes so many CPUs.
    pub fn make(count: usize) {
        CPUS.get_or_init(|| RealmCpu::all().take(count).map(PerCpu::new).collect());
    }

    pub fn all() -> &'static [PerCpu] {
        CPUS.get().expect("there are CPUs")
    }

    pub fn this() -> &'static PerCpu {
        &all()[THIS.load(Relaxed)]
    }

    /// Has another CPU go on; returns the one before.
    pub fn go_on(cpu: usize) -> usize {
        THIS.swap(cpu, Relaxed)
    }

    pub fn of(cpu: RealmCpu) -> Option<&'static PerCpu> {
        all().get(cpu.get())
    }

    pub fn in_interrupt<R>(f: impl FnOnce() -> R) -> R {
        let cpu = this();
        let before = cpu.in_interrupt.swap(true, Relaxed);
        let result = f();
        cpu.in_interrupt.store(before, Relaxed);
        result
    }

    pub fn current() -> *const Thread {
        this().current()
    }

    pub fn open() {
        preempt_if_needed();
    }

    pub fn preemption_held() -> bool {
        false
    }

    pub fn release_preemption() {}

    pub fn preempt_if_needed() {
        if this().needs_resched() {
            scheduler::reschedule();
        }
    }

    pub fn interrupt_window() {
        machine::window();
    }

    pub fn interrupt_window_if_long() {
        machine::window();
    }

    pub fn interrupt_window_in_timer() {
        machine::window();
    }
}
