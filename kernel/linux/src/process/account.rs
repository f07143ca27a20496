// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes have used, and what those of their children used that they have waited for.
//!
//! Linux knows who waits for whom and when a child has ended, but not what the child used in the
//! realm. So a process leaves that with its parent before anybody can hear of its end, and the
//! parent finds it there when its wait returns.

use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use crtos_abi::ids::Pid;
use crtos_core::{
    mm::heap,
    task::{Mutex, Thread},
    time::Nanos,
};

/// What was used.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Processor time.
    pub time: Nanos,
    /// How often a CPU was switched to it.
    pub switches: u64,
    /// Most bytes that were present at once: of several processes, those of the largest.
    pub most_present: u64,
}

impl Usage {
    /// Of a thread, up to now; its memory is that of its process. Any context.
    pub fn of(thread: &Thread) -> Usage {
        Usage { time: thread.time_used(), switches: thread.switches(), most_present: 0 }
    }

    /// Adds what another process used, or the same one before.
    pub fn add(&mut self, other: Usage) {
        self.time += other.time;
        self.switches += other.switches;
        self.most_present = self.most_present.max(other.most_present);
    }
}

/// Most children whose usage is kept until they are waited for: those of a process that does not
/// wait are not kept for ever.
const MOST: usize = 1024;

/// The account of a process. It stays over execve.
pub struct Account {
    parent: Weak<Account>,
    children: Mutex<Children>,
}

#[derive(Default)]
struct Children {
    /// Of all that were waited for, with their children.
    waited_for: Usage,
    /// Of those that are about to end or have ended, by their ids.
    ended: BTreeMap<Pid, Ended>,
}

/// What is known of a child that has ended.
#[derive(Clone, Copy)]
struct Ended {
    /// What it used, and its children that it had waited for.
    used: Usage,
    /// What its processor clock shows.
    time: Nanos,
}

impl Default for Account {
    /// That of a process whose parent is not in the realm.
    fn default() -> Self {
        Self::of_child_of(Weak::new())
    }
}

impl Account {
    fn of_child_of(parent: Weak<Account>) -> Self {
        Self { parent, children: Mutex::new(Children::default()) }
    }

    /// One for a child, or with `of_sibling` (CLONE_PARENT) of another child of the parent.
    pub fn of_child(self: &Arc<Self>, of_sibling: bool) -> Arc<Self> {
        let parent = if of_sibling { self.parent.clone() } else { Arc::downgrade(self) };
        Arc::new(Self::of_child_of(parent))
    }

    /// Whether it is that of a child of the process that has this one.
    pub fn is_parent_of(&self, child: &Account) -> bool {
        core::ptr::eq(child.parent.as_ptr(), self)
    }

    /// What the children used that were waited for, and theirs.
    pub fn waited_for(&self) -> Usage {
        self.children.lock().waited_for
    }

    /// Tells the parent, if that is in the realm, what its child `pid` used that is about to end,
    /// with its children, and what its processor clock shows. Thread context; may sleep.
    pub fn tell_parent(&self, pid: Pid, used: Usage, time: Nanos) {
        let Some(parent) = self.parent.upgrade() else { return };
        if !heap::has_reserve() {
            return;
        }
        let mut children = parent.children.lock();
        if children.ended.len() == MOST {
            children.ended.pop_first();
        }
        children.ended.insert(pid, Ended { used, time });
    }

    /// What child `pid` used that has ended, unless it is not known.
    pub fn of_ended(&self, pid: Pid) -> Option<Usage> {
        self.children.lock().ended.get(&pid).map(|ended| ended.used)
    }

    /// What the processor clock of child `pid` shows that has ended, unless that is not known.
    pub fn clock_of_ended(&self, pid: Pid) -> Option<Nanos> {
        self.children.lock().ended.get(&pid).map(|ended| ended.time)
    }

    /// Child `pid`, which has ended, was waited for; it had used `used`.
    pub fn wait_for(&self, pid: Pid, used: Usage) {
        let mut children = self.children.lock();
        children.ended.remove(&pid);
        children.waited_for.add(used);
    }
}
