// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a CPU does when no thread is ready, and the counters that the command line shows.

use super::scheduler;
use crate::arch::{cpu, machine_check, percpu};
use crate::mm::{frames, heap, layout};
use crate::sections;

/// The body of the idle threads.
pub(super) fn idle_loop() {
    scheduler::set_online();
    sections::start();
    loop {
        publish_memory();
        machine_check::poll();
        cpu::disable_interrupts();
        publish_idle_time();
        if percpu::this().needs_resched() {
            scheduler::reschedule();
            cpu::restore_interrupts(true);
        } else {
            cpu::wait_for_interrupt();
        }
    }
}

/// Stores how long this CPU was idle. Interrupts off.
fn publish_idle_time() {
    let Some(channel) = layout::channel() else { return };
    let (cpu, time) = scheduler::idle_time();
    // SAFETY: the channel is mapped and this word is the kernel's; Linux only reads it.
    unsafe {
        (&raw mut (*channel.as_ptr()).idle_time)
            .cast::<u64>()
            .add(cpu.get())
            .write_volatile(time.0);
    }
}

/// Stores how much memory is in use. Any context.
pub(super) fn publish_memory() {
    let Some(channel) = layout::channel() else { return };
    let channel = channel.as_ptr();
    let (pool, free) = frames::SHARED.usage();
    let (heap_size, heap_used) = heap::usage();
    // SAFETY: the channel is mapped and these words are the kernel's; Linux only reads them.
    unsafe {
        (&raw mut (*channel).pool_pages).write_volatile(pool);
        (&raw mut (*channel).pool_free).write_volatile(free);
        (&raw mut (*channel).heap_size).write_volatile(heap_size);
        (&raw mut (*channel).heap_used).write_volatile(heap_used);
    }
}
