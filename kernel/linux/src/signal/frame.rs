// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of a handler, the way back from it, and the stack it may lie on.

use alloc::vec::Vec;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_signal::{
    Action, Info, Set,
    frame::{self, AltStack, Frame, Place},
};
use linux_raw_sys::general as linux;

use crtos_core::{
    arch::{InterruptsOff, UserContext, fpu, user_memory},
    task,
};

use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{End, ThreadExt as _, UserThread},
};

/// Flag of sigaltstack(2): the stack is taken away while a handler runs.
pub(super) const SS_AUTODISARM: u32 = 1 << 31;

/// Has the lower half describe extended state as Linux does. At boot.
pub fn set_up() {
    let description = frame::description(fpu::size(), fpu::features());
    fpu::describe(description, frame::CLOSING_MAGIC);
}

/// What a handler's frame keeps of its thread.
#[derive(Default)]
pub(super) struct Kept {
    /// What it blocked.
    pub mask: Set,
    /// Its alternate stack.
    pub stack: AltStack,
}

/// A frame that has its place.
struct Laid {
    place: Place,
    /// What it consists of: `siginfo` is left out unless the handler asks for it.
    words: [u64; frame::SIZE / 8],
    count: usize,
}

impl Laid {
    fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

/// Lays out the frame of a handler; `None` if there is no room.
#[inline(always)]
fn lay_out(
    context: &UserContext,
    action: &Action,
    kept: &Kept,
    info: &Info,
    fault: [u64; 4],
) -> Option<Laid> {
    let has = |flag: u32| action.flags & u64::from(flag) != 0;
    if !has(linux::SA_RESTORER) {
        return None;
    }
    let Kept { mask, stack } = *kept;
    let rsp = UserAddr::new(context.rsp);
    let on_stack = is_on(&stack, rsp);
    let wanted = has(linux::SA_ONSTACK) && stack.size > 0;
    let top = if wanted && !on_stack {
        stack.start + stack.size
    } else {
        rsp.checked_sub(frame::RED_ZONE)?
    };
    let size = fpu::size();
    let place = frame::place(top, size)?;
    if (wanted || on_stack) && place.frame < stack.start {
        return None;
    }
    let flags = frame::FLAGS_STACK_SEGMENT | if size > 512 { frame::FLAG_XSTATE } else { 0 };
    let flags_of_stack = stack_state(&stack, rsp) | stack.flags;
    let words = Frame {
        restorer: action.restorer,
        flags,
        stack: AltStack { flags: flags_of_stack, ..stack },
        registers: registers(context),
        selectors: context.cs | context.ss << 48,
        fault,
        state: place.state,
        mask: mask.0,
        info: *info,
    }
    .to_words();
    let count = if has(linux::SA_SIGINFO) { words.len() } else { frame::WORDS_BEFORE_INFO };
    Some(Laid { place, words, count })
}

/// Has the context go on in a handler whose frame is at `frame`.
#[inline(always)]
fn go_on_in(context: &mut UserContext, action: &Action, signal: u32, frame: UserAddr) {
    // RFLAGS: trap, direction, resume.
    const CLEARED: u64 = 1 << 8 | 1 << 10 | 1 << 16;
    context.rflags &= !CLEARED;
    context.rip = action.handler.get();
    context.rsp = frame.get();
    context.rax = 0;
    context.rdi = signal.into();
    context.rsi = (frame + frame::INFO).get();
    context.rdx = (frame + frame::CONTEXT).get();
    context.orig_rax = u64::MAX;
}

/// Pushes the frame of a handler, if the memory is present, and has the context go on in it.
/// `false` if not; nothing is changed then but memory below the stack. Interrupts off.
pub(super) fn push_at_once(
    context: &mut UserContext,
    action: &Action,
    kept: &Kept,
    info: &Info,
    fault: [u64; 4],
) -> bool {
    let Some(laid) = lay_out(context, action, kept, info, fault) else { return false };
    let pushed = fpu::push(laid.place.frame, laid.words(), laid.place.state);
    if pushed {
        go_on_in(context, action, info.signal(), laid.place.frame);
    }
    pushed
}

/// As [`push_at_once`], wherever the memory is; `None` if there is no room. May sleep.
pub(super) fn push(
    context: &mut UserContext,
    action: &Action,
    kept: &Kept,
    info: &Info,
    fault: [u64; 4],
) -> Option<()> {
    let interrupts = InterruptsOff::take();
    let pushed = push_at_once(context, action, kept, info, fault);
    drop(interrupts);
    if !pushed {
        // Pages are not there yet, or there is no XSAVE.
        let laid = lay_out(context, action, kept, info, fault)?;
        let size = fpu::size();
        let mut image = Vec::new();
        image.try_reserve_exact(size + frame::STATE_TAIL).ok()?;
        image.resize(size + frame::STATE_TAIL, 0);
        fpu::save(&mut image[..size]);
        frame::describe_state(&mut image, size, fpu::features());
        user::write(laid.place.state, &image).ok()?;
        user::write(laid.place.frame, user_memory::bytes_of(laid.words())).ok()?;
        fpu::reset();
        go_on_in(context, action, info.signal(), laid.place.frame);
    }
    Some(())
}

/// Registers in the order of a frame.
fn registers(context: &UserContext) -> [u64; 18] {
    let UserContext { r8, r9, r10, r11, r12, r13, r14, r15, .. } = *context;
    let UserContext { rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags, .. } = *context;
    [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags]
}

fn is_on(stack: &AltStack, rsp: UserAddr) -> bool {
    rsp > stack.start && rsp - stack.start <= stack.size
}

fn stack_state(stack: &AltStack, rsp: UserAddr) -> u32 {
    if stack.size == 0 {
        linux::SS_DISABLE
    } else if is_on(stack, rsp) {
        linux::SS_ONSTACK
    } else {
        0
    }
}

/// Bytes that a handler's frame takes at most (AT_MINSIGSTKSZ).
pub fn frame_size() -> u64 {
    /// The state's alignment and the frame's.
    const PADDING: usize = 63 + 15 + 8;
    (frame::SIZE + fpu::size() + frame::STATE_TAIL + PADDING).next_multiple_of(16) as u64
}

/// sigaltstack(new, old).
pub fn sigaltstack(context: &UserContext, [new, old, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let index = user.signals.index();
    let before = user
        .process
        .signals
        .lock()
        .group
        .member(index)
        .map_or_else(AltStack::default, |member| member.own.stack);
    let rsp = UserAddr::new(context.rsp);
    let state = stack_state(&before, rsp) | before.flags;
    let [new, old] = [new, old].map(UserAddr::new);
    if !new.is_null() {
        let [start, flags, size] = user::read_words(new)?;
        let start = UserAddr::new(start);
        let flags = flags as u32;
        if before.size > 0 && before.flags == 0 && is_on(&before, rsp) {
            return Err(Errno::EPERM);
        }
        let stack = match flags & !SS_AUTODISARM {
            linux::SS_DISABLE => AltStack::default(),
            0 | linux::SS_ONSTACK if size < linux::MINSIGSTKSZ.into() => return Err(Errno::ENOMEM),
            0 | linux::SS_ONSTACK => AltStack { start, flags: flags & SS_AUTODISARM, size },
            _ => return Err(Errno::EINVAL),
        };
        set_stack(user, stack);
    }
    if !old.is_null() {
        user::write_words(old, [before.start.get(), state.into(), before.size])?;
    }
    Ok(0)
}

fn set_stack(user: &UserThread, stack: AltStack) {
    let mut state = user.process.signals.lock();
    if let Some(member) = state.group.member_mut(user.signals.index()) {
        member.own.stack = stack;
    }
}

/// rt_sigreturn(): takes back what the kernel pushed for the handler. The frame is the program's to
/// change.
pub fn sigreturn(context: &mut UserContext) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    match restore(user, context) {
        Some(result) => {
            context.orig_rax = u64::MAX;
            Ok(result)
        }
        None => {
            crtos_core::info!(
                "pid {}: bad signal frame at {:#x}",
                user.process.outer_pid,
                context.rsp
            );
            user.process.end(End::Signal(linux::SIGSEGV));
            Ok(0)
        }
    }
}

fn restore(user: &UserThread, context: &mut UserContext) -> Option<u64> {
    let mut bytes = [0; frame::READ];
    user::read(UserAddr::new(context.rsp).checked_sub(8)?, &mut bytes).ok()?;
    let frame = Frame::from_bytes(&bytes);
    let [r8, r9, r10, r11, r12, r13, r14, r15, ..] = frame.registers;
    let [.., rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags] = frame.registers;
    if UserAddr::new(rip) >= UserAddr::END + PAGE_SIZE {
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
    let mask = Set(frame.mask) - Set::UNCATCHABLE;
    let (stack, before) = {
        let mut state = user.process.signals.lock();
        let index = user.signals.index();
        let member = state.group.member(index)?;
        let (stack, before) = (member.own.stack, member.mask());
        if (mask - before).is_empty() {
            super::mask::apply(&mut state, index, mask);
        }
        (stack, before)
    };
    if !(mask - before).is_empty() {
        // The program has changed the frame.
        super::mask::change(user, before, mask).ok()?;
    }
    let AltStack { start, flags, size } = frame.stack;
    let kept = AltStack { start, flags: flags & SS_AUTODISARM, size };
    if flags & linux::SS_DISABLE != 0 {
        if stack.size != 0 {
            set_stack(user, AltStack::default());
        }
    } else if kept != stack
        && !is_on(&stack, UserAddr::new(rsp))
        && size >= linux::MINSIGSTKSZ.into()
    {
        set_stack(user, kept);
    }
    Some(rax)
}

/// Loads the extended state at `address`; without one, the initial state.
fn restore_state(address: UserAddr) -> Option<()> {
    /// Bytes of the state without XSAVE, and where its header starts.
    const LEGACY: usize = 512;
    if address.is_null() {
        fpu::reset();
        return Some(());
    }
    let size = fpu::size();
    let interrupts = InterruptsOff::take();
    let restored = is_described(address, size) && fpu::restore_from_user(address);
    drop(interrupts);
    if restored {
        return Some(());
    }
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

/// Whether the extended state at `address` is present and all there, as far as its description
/// says.
fn is_described(address: UserAddr, size: usize) -> bool {
    let mut description = [0; frame::DESCRIBED];
    let mut tail = [0; frame::STATE_TAIL];
    let description_at = address.wrapping_add(frame::DESCRIPTION as u64);
    user_memory::read(description_at, &mut description) == description.len()
        && user_memory::read(address.wrapping_add(size as u64), &mut tail) == tail.len()
        && frame::is_description(&description, &tail, size)
}
