// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals.
//!
//! Linux delivers signals to the shadow. Those left to the default action it carries out by itself, those that the
//! program ignores it ignores, and the others it forwards here. A signal that the program blocks while its action is the default is
//! forwarded from then on, too, and its default action is carried out here when it is unblocked.

use alloc::vec::Vec;

use crtos_abi::{
    PAGE_SIZE,
    channel::{OP_SIGNAL_ACTION, OP_SIGNAL_FORWARD, THREAD_RUNNING, THREAD_SLEEPING, USER_END},
};
use crtos_syscalls::frame::{self, AltStack, Frame, Info};
use linux_raw_sys::general as linux;

use crate::{
    arch::{UserContext, fpu},
    process::{self, End, User},
    remote,
    syscall::{self, Args, Errno, SysResult},
    task::{self, WakeReason},
    time::Nanos,
    user,
};

/// A synchronous fault of a program.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP; SIGKILL if there is no memory left to go on with.
    pub signal: u32,
    /// `si_code` as Linux gives it.
    pub code: i32,
    /// `si_addr`.
    pub address: u64,
    /// Number of the exception (`trapno` in a signal frame).
    pub trap: u32,
    /// Error code of the exception (`err`).
    pub error: u64,
}

/// Signals of Linux.
const COUNT: u32 = 64;
/// Handler that stands for the default action, and for ignoring.
const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;
/// Signals that are never blocked, ignored or handled.
const UNCATCHABLE: u64 = bit(linux::SIGKILL) | bit(linux::SIGSTOP);
/// Signals whose default action is to do nothing.
const HARMLESS: u64 =
    bit(linux::SIGCHLD) | bit(linux::SIGURG) | bit(linux::SIGWINCH) | bit(linux::SIGCONT);
/// Signals whose default action is to stop the process.
const STOPPING: u64 =
    bit(linux::SIGSTOP) | bit(linux::SIGTSTP) | bit(linux::SIGTTIN) | bit(linux::SIGTTOU);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// What the program does on a signal: `struct sigaction` as rt_sigaction(2) has it.
#[derive(Clone, Copy, Debug, Default)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// What the shadow does on a signal; the numbers of `OP_SIGNAL_ACTION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    Default = 0,
    Ignore = 1,
    Forward = 2,
    /// As it was inherited; nobody has looked yet.
    Unknown = 3,
}

/// Actions and pending signals of a process.
pub struct Actions {
    table: [Action; COUNT as usize],
    shadow: [Disposition; COUNT as usize],
    pending: u64,
}

impl Default for Actions {
    /// Nothing handled, nothing pending.
    fn default() -> Self {
        Self {
            table: [Action::default(); COUNT as usize],
            shadow: [Disposition::Unknown; COUNT as usize],
            pending: 0,
        }
    }
}

impl Actions {
    /// Pending signals outside `mask` that do something. The others outside it are forgotten.
    fn effective(&mut self, mask: u64) -> u64 {
        let mut effective = self.pending & !mask;
        for signal in signals(effective) {
            let handler = self.table[signal as usize - 1].handler;
            if handler == IGNORE || handler == DEFAULT && HARMLESS & bit(signal) != 0 {
                effective &= !bit(signal);
                self.pending &= !bit(signal);
            }
        }
        effective
    }
}

/// The signals of a set, in ascending order.
fn signals(set: u64) -> impl Iterator<Item = u32> {
    (1..=COUNT).filter(move |&signal| set & bit(signal) != 0)
}

/// Mask and signal stack of a thread.
#[derive(Default)]
pub struct ThreadSignals {
    mask: u64,
    /// What the mask was before rt_sigsuspend(2), until a handler's frame or the return takes it back.
    saved: Option<u64>,
    stack: AltStack,
}

/// Takes over the mask that the shadow was started with.
pub fn inherit(user: &User, blocked: u64) -> Result<(), remote::Gone> {
    user.signals.lock().mask = blocked & !UNCATCHABLE;
    if blocked != 0 {
        remote::request(OP_SIGNAL_FORWARD, 0, [blocked, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// Gives a forked process what its parent has: actions, mask and signal stack, but nothing that is pending.
pub fn copy(child: &User, parent: &User) {
    let (table, shadow) = {
        let actions = parent.process.signals.lock();
        (actions.table, actions.shadow)
    };
    *child.process.signals.lock() = Actions { table, shadow, pending: 0 };
    let ThreadSignals { mask, stack, .. } = *parent.signals.lock();
    *child.signals.lock() = ThreadSignals { mask, saved: None, stack };
}

/// The calling thread's mask.
pub fn mask() -> u64 {
    task::current().data.user().map_or(0, |user| user.signals.lock().mask)
}

/// Makes pending what Linux has forwarded.
fn collect(user: &User) {
    if let Some(block) = remote::block()
        && block.notices(user.slot).signal
    {
        let signals = block.take_signals(user.slot);
        user.process.signals.lock().pending |= signals;
    }
}

/// Whether the calling thread has a signal to deal with.
pub fn is_pending() -> bool {
    let current = task::current();
    current.data.user().is_some_and(|user| {
        collect(user);
        let mask = user.signals.lock().mask;
        user.process.signals.lock().effective(mask) != 0
    })
}

/// Sleeps until `deadline` (kernel time) or until a signal or the end of the process interrupts.
pub fn sleep(deadline: Option<Nanos>) -> Result<(), Errno> {
    let current = task::current();
    let Some(user) = current.data.user() else { return Ok(()) };
    user.state.store(THREAD_SLEEPING, core::sync::atomic::Ordering::Relaxed);
    let result = loop {
        process::note_if_gone();
        if user.process.is_ending() || is_pending() {
            break Err(Errno::RESTART_NO_HANDLER);
        }
        if task::block(deadline) == WakeReason::Timeout {
            break Ok(());
        }
    };
    user.state.store(THREAD_RUNNING, core::sync::atomic::Ordering::Relaxed);
    result
}

/// Deals with pending signals before the thread returns to user mode, and with a call that was interrupted.
pub fn deliver(context: &mut UserContext) {
    let current = task::current();
    let Some(user) = current.data.user() else { return };
    collect(user);
    loop {
        let mask = user.signals.lock().mask;
        let (signal, action) = {
            let mut actions = user.process.signals.lock();
            let Some(signal) = signals(actions.effective(mask)).next() else { break };
            actions.pending &= !bit(signal);
            (signal, actions.table[signal as usize - 1])
        };
        if action.handler == DEFAULT {
            if STOPPING & bit(signal) != 0 {
                let _ = syscall::linux(
                    linux::__NR_kill,
                    &[user.process.pid.into(), linux::SIGSTOP.into()],
                );
                continue;
            }
            user.process.end(End::Signal(signal));
            return;
        }
        interrupted(context, action.flags & u64::from(linux::SA_RESTART) != 0);
        handle(
            user,
            context,
            signal,
            &action,
            Info { signal: signal as i32, code: 0, value: 0 },
            [0; 4],
        );
        if user.process.is_ending() {
            return;
        }
    }
    if is_call(context) && Errno::restart(context.rax).is_some() {
        again(context);
    }
    let mut signals = user.signals.lock();
    if let Some(mask) = signals.saved.take() {
        signals.mask = mask;
    }
}

fn is_call(context: &UserContext) -> bool {
    context.orig_rax != u64::MAX
}

/// Makes the interrupted call again.
fn again(context: &mut UserContext) {
    /// Bytes of the SYSCALL instruction.
    const LENGTH: u64 = 2;
    context.rax = context.orig_rax;
    context.rip -= LENGTH;
    context.orig_rax = u64::MAX;
}

/// Decides what becomes of an interrupted call when a handler runs.
fn interrupted(context: &mut UserContext, restart: bool) {
    if !is_call(context) {
        return;
    }
    match Errno::restart(context.rax) {
        Some(Errno::RESTART) if restart => again(context),
        Some(_) => context.rax = Errno::EINTR.value(),
        None => {}
    }
    context.orig_rax = u64::MAX;
}

/// Runs a handler: pushes its frame and changes the context. Without room for it the process ends by SIGSEGV.
fn handle(
    user: &User,
    context: &mut UserContext,
    signal: u32,
    action: &Action,
    info: Info,
    fault: [u64; 4],
) {
    if push_frame(user, context, action, info, fault).is_none() {
        crate::info!("pid {}: no room for the frame of signal {signal}", user.process.pid);
        user.process.end(End::Signal(linux::SIGSEGV));
        return;
    }
    {
        let mut signals = user.signals.lock();
        signals.saved = None;
        signals.mask |= action.mask & !UNCATCHABLE;
        if action.flags & u64::from(linux::SA_NODEFER) == 0 {
            signals.mask |= bit(signal);
        }
    }
    if action.flags & u64::from(linux::SA_RESETHAND) != 0 {
        user.process.signals.lock().table[signal as usize - 1].handler = DEFAULT;
    }
}

fn push_frame(
    user: &User,
    context: &mut UserContext,
    action: &Action,
    info: Info,
    fault: [u64; 4],
) -> Option<()> {
    if action.flags & u64::from(linux::SA_RESTORER) == 0 {
        return None;
    }
    let (mask, stack) = {
        let signals = user.signals.lock();
        (signals.saved.unwrap_or(signals.mask), signals.stack)
    };
    let on_stack = is_on(&stack, context.rsp);
    let wanted = action.flags & u64::from(linux::SA_ONSTACK) != 0 && stack.size > 0;
    let top = if wanted && !on_stack {
        stack.start + stack.size
    } else {
        context.rsp.checked_sub(frame::RED_ZONE)?
    };
    let size = fpu::size();
    let place = frame::place(top, size)?;
    if wanted && place.frame < stack.start {
        return None;
    }
    let mut image = Vec::new();
    image.try_reserve_exact(size + frame::STATE_TAIL).ok()?;
    image.resize(size + frame::STATE_TAIL, 0);
    fpu::save(&mut image[..size]);
    frame::describe_state(&mut image, size, fpu::features());
    let flags = frame::FLAGS_STACK_SEGMENT | if size > 512 { frame::FLAG_XSTATE } else { 0 };
    let pushed = Frame {
        restorer: action.restorer,
        flags,
        stack: AltStack { flags: stack_state(&stack, context.rsp), ..stack },
        registers: registers(context),
        selectors: context.cs | context.ss << 48,
        fault,
        state: place.state,
        mask,
        info,
    };
    user::write(place.state, &image).ok()?;
    user::write(place.frame, &pushed.to_bytes()).ok()?;
    fpu::reset();
    // RFLAGS: trap, direction, resume.
    const CLEARED: u64 = 1 << 8 | 1 << 10 | 1 << 16;
    context.rflags &= !CLEARED;
    context.rip = action.handler;
    context.rsp = place.frame;
    context.rax = 0;
    context.rdi = info.signal as u64;
    context.rsi = place.frame + frame::INFO;
    context.rdx = place.frame + frame::CONTEXT;
    context.orig_rax = u64::MAX;
    Some(())
}

/// Registers in the order of a frame.
fn registers(context: &UserContext) -> [u64; 18] {
    let UserContext { r8, r9, r10, r11, r12, r13, r14, r15, .. } = *context;
    let UserContext { rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags, .. } = *context;
    [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags]
}

fn is_on(stack: &AltStack, rsp: u64) -> bool {
    rsp > stack.start && rsp - stack.start <= stack.size
}

fn stack_state(stack: &AltStack, rsp: u64) -> u32 {
    if stack.size == 0 {
        linux::SS_DISABLE
    } else if is_on(stack, rsp) {
        linux::SS_ONSTACK
    } else {
        0
    }
}

/// Called in the thread that faulted. Interrupts on, may sleep. When it returns, the context is resumed.
pub fn fault(context: &mut UserContext, fault: Fault) {
    process::note_if_gone();
    let current = task::current();
    if let Some(user) = current.data.user() {
        let mask = user.signals.lock().mask;
        let action = user.process.signals.lock().table[fault.signal as usize % 65 - 1];
        let handled =
            action.handler != DEFAULT && action.handler != IGNORE && mask & bit(fault.signal) == 0;
        if handled {
            let info = Info { signal: fault.signal as i32, code: fault.code, value: fault.address };
            let cr2 = if fault.trap == PAGE_FAULT { fault.address } else { 0 };
            let words = [fault.error, fault.trap.into(), mask, cr2];
            handle(user, context, fault.signal, &action, info, words);
        } else {
            crate::info!(
                "pid {}: signal {} at {:#x}, address {:#x}, exception {} ({:#x})",
                user.process.pid,
                fault.signal,
                context.rip,
                fault.address,
                fault.trap,
                fault.error
            );
            user.process.end(End::Signal(fault.signal));
        }
    }
    process::end_if_due();
}

/// Exception number of page faults.
const PAGE_FAULT: u32 = 14;

/// Bytes that a handler's frame takes at most (AT_MINSIGSTKSZ).
pub fn frame_size() -> u64 {
    /// The state's alignment and the frame's.
    const PADDING: usize = 63 + 15 + 8;
    (frame::SIZE + fpu::size() + frame::STATE_TAIL + PADDING).next_multiple_of(16) as u64
}

/// Size of a signal set; other sizes are EINVAL.
const SET_SIZE: u64 = 8;

/// rt_sigaction(signal, action, old, size).
pub fn sigaction([signal, action, old, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    let signal = signal as u32;
    if size != SET_SIZE || !(1..=COUNT).contains(&signal) {
        return Err(Errno::EINVAL);
    }
    let new = if action == 0 {
        None
    } else {
        let [handler, flags, restorer, mask] = user::read_words(action)?;
        if UNCATCHABLE & bit(signal) != 0 {
            return Err(Errno::EINVAL);
        }
        Some(Action { handler, flags, restorer, mask })
    };
    let before = known(user, signal)?;
    if let Some(new) = new {
        let blocked = user.signals.lock().mask & bit(signal) != 0;
        let index = signal as usize - 1;
        let wanted = match new.handler {
            IGNORE => Disposition::Ignore,
            DEFAULT if !blocked || HARMLESS & bit(signal) != 0 => Disposition::Default,
            _ => Disposition::Forward,
        };
        // What Linux has to know of the flags.
        let of_children = u64::from(linux::SA_NOCLDSTOP | linux::SA_NOCLDWAIT);
        let changed = {
            let mut actions = user.process.signals.lock();
            actions.table[index] = new;
            let disposition = core::mem::replace(&mut actions.shadow[index], wanted);
            disposition != wanted || (before.flags ^ new.flags) & of_children != 0
        };
        if changed {
            remote::request(
                OP_SIGNAL_ACTION,
                0,
                [signal.into(), wanted as u64, new.flags, 0, 0, 0],
            )?;
        }
    }
    if old != 0 {
        let Action { handler, flags, restorer, mask } = before;
        user::write_words(old, [handler, flags, restorer, mask])?;
    }
    Ok(0)
}

/// The action of `signal`; asks the shadow the first time, because it may have been inherited as ignored.
fn known(user: &User, signal: u32) -> Result<Action, Errno> {
    let index = signal as usize - 1;
    let unknown = user.process.signals.lock().shadow[index] == Disposition::Unknown;
    if unknown {
        let found = remote::request(OP_SIGNAL_ACTION, 0, [signal.into(), 3, 0, 0, 0, 0])?;
        let mut actions = user.process.signals.lock();
        (actions.shadow[index], actions.table[index].handler) = match found {
            1 => (Disposition::Ignore, IGNORE),
            2 => (Disposition::Forward, DEFAULT),
            _ => (Disposition::Default, DEFAULT),
        };
    }
    Ok(user.process.signals.lock().table[index])
}

/// rt_sigprocmask(how, set, old, size).
pub fn sigprocmask([how, set, old, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let before = user.signals.lock().mask;
    if set != 0 {
        let [set] = user::read_words(set)?;
        let mask = match how as u32 {
            linux::SIG_BLOCK => before | set,
            linux::SIG_UNBLOCK => before & !set,
            linux::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        set_mask(user, mask)?;
    }
    if old != 0 {
        user::write_words(old, [before])?;
    }
    Ok(0)
}

/// Sets the mask. The first time that a signal is blocked whose default action would end the shadow, the shadow is told to forward it.
fn set_mask(user: &User, mask: u64) -> Result<(), Errno> {
    let mask = mask & !UNCATCHABLE;
    let to_forward = {
        let mut actions = user.process.signals.lock();
        let mut set = 0;
        for signal in signals(mask & !HARMLESS) {
            let index = signal as usize - 1;
            let by_default = actions.table[index].handler == DEFAULT;
            if by_default && actions.shadow[index] == Disposition::Default {
                actions.shadow[index] = Disposition::Forward;
                set |= bit(signal);
            }
        }
        set
    };
    let unknown = {
        let actions = user.process.signals.lock();
        signals(mask & !HARMLESS)
            .filter(|&signal| actions.shadow[signal as usize - 1] == Disposition::Unknown)
            .fold(0, |set, signal| set | bit(signal))
    };
    user.signals.lock().mask = mask;
    if to_forward | unknown != 0 {
        remote::request(OP_SIGNAL_FORWARD, 0, [to_forward | unknown, 0, 0, 0, 0, 0])?;
        for signal in signals(unknown) {
            // Ignored ones stay so; the others are forwarded now.
            known(user, signal)?;
        }
    }
    if is_pending() {
        task::current().set_attention();
    }
    Ok(())
}

/// rt_sigsuspend(mask, size).
pub fn sigsuspend([set, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [mask] = user::read_words(set)?;
    let before = user.signals.lock().mask;
    set_mask(user, mask)?;
    user.signals.lock().saved = Some(before);
    sleep(None)?;
    Err(Errno::RESTART_NO_HANDLER)
}

/// pause().
pub fn pause() -> SysResult {
    sleep(None)?;
    Err(Errno::RESTART_NO_HANDLER)
}

/// sigaltstack(new, old).
pub fn sigaltstack(context: &UserContext, [new, old, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    let before = user.signals.lock().stack;
    let state = stack_state(&before, context.rsp);
    if new != 0 {
        let [start, flags, size] = user::read_words(new)?;
        let flags = flags as u32;
        if before.size > 0 && is_on(&before, context.rsp) {
            return Err(Errno::EPERM);
        }
        let stack = match flags {
            linux::SS_DISABLE => AltStack::default(),
            0 | linux::SS_ONSTACK if size < linux::MINSIGSTKSZ.into() => return Err(Errno::ENOMEM),
            0 | linux::SS_ONSTACK => AltStack { start, flags: 0, size },
            _ => return Err(Errno::EINVAL),
        };
        user.signals.lock().stack = stack;
    }
    if old != 0 {
        user::write_words(old, [before.start, state.into(), before.size])?;
    }
    Ok(0)
}

/// rt_sigreturn(): takes back what [`handle`] pushed. The frame is the program's to change.
pub fn sigreturn(context: &mut UserContext) -> SysResult {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    match restore(user, context) {
        Some(result) => {
            context.orig_rax = u64::MAX;
            if is_pending() {
                current.set_attention();
            }
            Ok(result)
        }
        None => {
            crate::info!("pid {}: bad signal frame at {:#x}", user.process.pid, context.rsp);
            user.process.end(End::Signal(linux::SIGSEGV));
            Ok(0)
        }
    }
}

fn restore(user: &User, context: &mut UserContext) -> Option<u64> {
    let mut bytes = [0; frame::SIZE];
    user::read(context.rsp.checked_sub(8)?, &mut bytes).ok()?;
    let frame = Frame::from_bytes(&bytes);
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags] =
        frame.registers;
    if rip >= USER_END + PAGE_SIZE {
        return None;
    }
    restore_state(frame.state)?;
    let UserContext { cs, ss, .. } = *context;
    *context = UserContext {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        rflags,
        cs,
        ss,
        orig_rax: u64::MAX,
    };
    let mut signals = user.signals.lock();
    signals.mask = frame.mask & !UNCATCHABLE;
    if frame.stack.flags & linux::SS_DISABLE != 0 {
        signals.stack = AltStack::default();
    } else if !is_on(&signals.stack, rsp) && frame.stack.size >= linux::MINSIGSTKSZ.into() {
        signals.stack = AltStack { flags: 0, ..frame.stack };
    }
    Some(rax)
}

/// Loads the extended state at `address`; without one, the initial state.
fn restore_state(address: u64) -> Option<()> {
    /// Bytes of the state without XSAVE, and where its header starts.
    const LEGACY: usize = 512;
    if address == 0 {
        fpu::reset();
        return Some(());
    }
    let size = fpu::size();
    let mut image = Vec::new();
    image.try_reserve_exact(size + frame::STATE_TAIL).ok()?;
    image.resize(size + frame::STATE_TAIL, 0);
    let whole = user::read(address, &mut image).is_ok() && frame::is_described(&image, size);
    if !whole {
        image.fill(0);
        user::read(address, &mut image[..LEGACY]).ok()?;
        if size > LEGACY {
            // Components of the legacy area: x87 and SSE.
            image[LEGACY] = 3;
        }
    }
    fpu::restore(&image[..size]).then_some(())
}
