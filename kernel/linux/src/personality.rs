// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the lower half calls.

use crtos_abi::ids::RealmCpu;
use crtos_core::{
    arch::{
        self, Exception, UserContext,
        interrupts::{self, WayBack},
    },
    personality::{FastHandlers, Personality},
    task::{Level, Thread},
};

use crate::{
    devices, futex,
    process::{self, Linux, ThreadExt as _, UserThread, lapse},
    remote::{self, replies},
    signal, sockets,
    syscall::{self, fast},
};

crtos_core::personality!(Linux);

impl Personality for Linux {
    type Thread = UserThread;

    const FAST_HANDLERS: FastHandlers<UserThread> = fast::HANDLERS;

    fn start() {
        signal::set_up();
        process::user_limits::start();
        futex::set_up(arch::random());
        sockets::inet::start();
        devices::start();
        remote::start();
    }

    fn system_call(context: &mut UserContext) {
        syscall::dispatch(context);
    }

    fn page_fault() {
        lapse::fault();
    }

    fn exception(context: &mut UserContext, exception: Exception) {
        signal::exception(context, exception);
    }

    fn attend_own(context: &mut UserContext, thread: &Thread, way: &mut WayBack) -> bool {
        signal::deliver_own(context, thread, way)
    }

    fn attend(context: &mut UserContext) {
        process::return_to_user(context);
    }

    fn level_changed(thread: &Thread, level: Level) -> bool {
        thread.user().is_some_and(|user| replies::level_changed(thread, user, level))
    }

    fn doorbell(cpu: RealmCpu, rank: u32) {
        if devices::doorbell() {
            // What follows may wake somebody as well.
            interrupts::window_if_long();
        }
        remote::doorbell(cpu, rank);
    }

    fn link() {
        devices::link();
    }

    fn rank_fell(rank: u32) {
        replies::poll(rank);
    }
}
