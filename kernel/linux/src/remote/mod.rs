// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: how a thread has its shadow thread do something in Linux (cRTOS, VEE'20,
//! section 4.2).
//!
//! The calling thread hands its slot to Linux and blocks. Linux's answers arrive as bits in the
//! channel, which [`replies`] turns into wake-ups of the slots' owners: from the doorbell interrupt
//! if what runs does not outrank the caller, else when that changes. Faults that Linux takes on the
//! program's memory are resolved by the waiting caller itself.
//!
//! | file | concept |
//! |---|---|
//! | [`call`] | one remote call |
//! | [`mod@linux`] | system calls that Linux makes |
//! | [`end`] | Linux has ended, as far as is known |
//! | [`lock`] | whether Linux may end or stop programs, or bring new ones |
//! | [`slots`] | which slots the kernel holds, and whose they are |
//! | [`replies`] | what Linux stored becomes wake-ups |
//! | [`revocation`] | pages that Linux must let go of |

mod call;
pub mod end;
mod linux;
pub mod lock;
pub mod replies;
pub mod revocation;
pub mod slots;

pub use call::{Gone, interrupt, request, request_end, request_words, wait_for_end};
pub use linux::{is_capable, linux, note_option, own_call, pass, pass_again};

use crtos_abi::channel::TRACE_DOORBELL;
use crtos_abi::ids::RealmCpu;
use crtos_channel::{Channel, DoorbellCpu, Slot};
use spin::Once;

use crtos_core::{arch, mm::layout, task, trace};

use crate::{futex::across, process::housekeeper};

static CHANNEL: Once<Channel> = Once::new();

/// The channel.
pub fn channel() -> Option<Channel> {
    CHANNEL.get().copied()
}

/// Called once at boot in a kernel thread, interrupts on; starts what takes spawns and notices.
pub fn start() {
    let Some(channel) = layout::channel_view() else { return };
    if let Err(error) = channel.attach() {
        crtos_core::error!("the channel cannot be used: {error:?}; are all parts of one version?");
        return;
    }
    CHANNEL.call_once(|| channel);
    lock::start();
    housekeeper::start();
    replies::start();
    end::start();
    across::start();
    task::clock_set::start();
}

/// Called when the doorbell rang, while this CPU runs something of `rank`. Interrupts off.
pub fn doorbell(cpu: RealmCpu, rank: u32) {
    if let Some(channel) = CHANNEL.get() {
        channel.count_doorbell_taken(cpu);
        if channel.is_asked() {
            housekeeper::wake();
        }
        end::look(*channel);
    }
    trace::follow();
    task::clock_set::look();
    replies::poll(rank);
}

/// Rings Linux's doorbell for what was stored in `slot`, on the CPU on which its shadow thread
/// waits.
pub fn ring(channel: Channel, slot: Slot) {
    ring_at(channel, channel.waits_on(slot));
}

/// Rings it on that CPU of Linux. Any context; an exit, which may wait until Linux may be rung
/// again.
pub fn ring_at(channel: Channel, cpu: DoorbellCpu) {
    trace::event(TRACE_DOORBELL, 0, 0);
    channel.count_doorbell_sent();
    arch::ring_linux(cpu);
}
