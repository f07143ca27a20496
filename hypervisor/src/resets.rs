// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux wants the machine to be reset or switched off. Beside a locked cell that halts Linux, and
//! Linux alone; otherwise its accesses to the ports concerned do not come here. Those to the ports
//! of PCI configuration space do if some of it is not Linux's.

use crtos_machine::arch::{Event, Exit, PortAccess, VirtualCpu};
use crtos_machine::local::Local;
use crtos_machine::ownership::{self, PortVerdict};
use crtos_machine::{park, processor, report};
use crtos_partition::resets::Verdict;

use crate::{configuration, interrupts, management};

/// What is read where nothing is.
const NOTHING: u32 = !0;

/// Carries out an access of Linux to ports of which one exits.
pub fn access_ports(local: &mut Local, exit: Exit) {
    let PortAccess { access, is_string } = local.vcpu().port_access();
    let mut ownership = ownership::lock(local);
    let verdict = ownership.judge_ports(&access);
    let mut value = NOTHING;
    if !is_string && matches!(verdict, PortVerdict::Watched(Verdict::Free)) {
        value = processor::access_ports_for_root(&access);
    }
    drop(ownership);
    match verdict {
        PortVerdict::Again => return,
        PortVerdict::Foreign => return local.vcpu().inject(Event::GeneralProtection),
        // Linux's drivers use none there, and what it writes is not known.
        _ if is_string => return local.vcpu().inject(Event::GeneralProtection),
        PortVerdict::Absent | PortVerdict::Watched(Verdict::Lost | Verdict::Free) => (),
        PortVerdict::Kept => configuration::complain(local),
        PortVerdict::Watched(Verdict::Ends) => {
            let (cpu, port) = (local.index(), access.first);
            report::line(format_args!("cpu{cpu} root: wants a reset or sleep by port {port:#x}"));
            return halt_linux(local);
        }
    }
    if access.written.is_none() {
        local.vcpu().set_port_value(value);
    }
    local.vcpu().skip_exit(exit);
}

/// Halts Linux, on all its CPUs and for good. The cells hear of it, and go on.
pub fn halt_linux(local: &mut Local) {
    if park::halt_root(local) {
        report::line(format_args!("cpu{} root: halted: a cell is locked", local.index()));
        interrupts::ring_cells();
        management::reset_if_unlocked();
    }
    park::leave_root(local);
}
