// SPDX-License-Identifier: MIT OR Apache-2.0
//! PR_GET_SPECULATION_CTRL and PR_SET_SPECULATION_CTRL: what the processor may execute ahead.
//!
//! A program can ask to be kept apart from others in predictions of indirect branches, where the
//! processor has a barrier. Loads before earlier stores cannot be controlled, and the first-level
//! cache is not emptied; both are answered as a Linux answers that does not do so.

use linux_raw_sys::prctl::{
    PR_SPEC_DISABLE, PR_SPEC_ENABLE, PR_SPEC_FORCE_DISABLE, PR_SPEC_INDIRECT_BRANCH,
    PR_SPEC_L1D_FLUSH, PR_SPEC_NOT_AFFECTED, PR_SPEC_PRCTL, PR_SPEC_STORE_BYPASS,
};

use crtos_core::{arch, task};

use crate::{
    abi::{Args, Errno, SysResult},
    process::ThreadExt as _,
};

/// prctl(PR_GET_SPECULATION_CTRL, what, 0, 0, 0).
pub fn get([_, what, third, fourth, fifth, ..]: Args) -> SysResult {
    if third != 0 || fourth != 0 || fifth != 0 {
        return Err(Errno::EINVAL);
    }
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let state = match u32::try_from(what) {
        Ok(PR_SPEC_STORE_BYPASS) if arch::has_store_bypass() => PR_SPEC_ENABLE,
        Ok(PR_SPEC_STORE_BYPASS) => PR_SPEC_NOT_AFFECTED,
        Ok(PR_SPEC_INDIRECT_BRANCH) if arch::has_barrier() => {
            PR_SPEC_PRCTL | user.speculation.get()
        }
        Ok(PR_SPEC_INDIRECT_BRANCH) => PR_SPEC_ENABLE,
        Ok(PR_SPEC_L1D_FLUSH) => PR_SPEC_FORCE_DISABLE,
        _ => return Err(Errno::ENODEV),
    };
    Ok(state.into())
}

/// prctl(PR_SET_SPECULATION_CTRL, what, state, 0, 0).
pub fn set([_, what, state, fourth, fifth, ..]: Args) -> SysResult {
    if fourth != 0 || fifth != 0 {
        return Err(Errno::EINVAL);
    }
    let current = task::current();
    let speculation = &current.user().ok_or(Errno::ESRCH)?.speculation;
    match u32::try_from(what) {
        Ok(PR_SPEC_STORE_BYPASS) => return Err(Errno::ENXIO),
        Ok(PR_SPEC_INDIRECT_BRANCH) => (),
        Ok(PR_SPEC_L1D_FLUSH) => return Err(Errno::EPERM),
        _ => return Err(Errno::ENODEV),
    }
    match u32::try_from(state) {
        Ok(PR_SPEC_ENABLE) if !arch::has_barrier() => (),
        Ok(PR_SPEC_ENABLE) if speculation.get() == PR_SPEC_FORCE_DISABLE => {
            return Err(Errno::EPERM);
        }
        Ok(PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE) if !arch::has_barrier() => {
            return Err(Errno::EPERM);
        }
        Ok(PR_SPEC_DISABLE) if speculation.get() == PR_SPEC_FORCE_DISABLE => (),
        Ok(wanted @ (PR_SPEC_ENABLE | PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE)) => {
            speculation.set(wanted);
        }
        _ => return Err(Errno::ERANGE),
    }
    Ok(0)
}
