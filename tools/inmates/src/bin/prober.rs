// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches what a cell may not touch: the first word on the command line says what. If it survives
//! it says "still alive" and goes on counting in the first word of the shared block. Further words
//! say what it does when its doorbell rings, a word each millisecond: it "agrees" to its end,
//! "breaks" its bounds, or "tells" what became of Linux, by the letters R and S on the debug port.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::boot::{IMAGE_ADDRESS, INITIAL_TABLES, INITIAL_TABLES_SIZE};
use crtos_abi::hypercall::{
    DOORBELL_ANYWHERE, HC_CELL_CREATE, HC_CELL_UNLOCK, HC_DOORBELL, HC_LEAVE, HC_ROOT_STATE,
};
use crtos_inmates::{apic, boot, halt, hypercall, inmate, println, shared, wait_for_interrupt};
use crtos_registers::apic::command::{self, ASSERT, LOGICAL};
use crtos_registers::apic::{PAGE, Register, x2apic_logical};
use crtos_registers::{cpuid as leaf, msr as registers};
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

inmate!(main, |vector| {
    if u32::from(vector) == boot::info().doorbell_vector {
        RANG.store(true, Ordering::Relaxed);
    }
});

/// The doorbell rang.
static RANG: AtomicBool = AtomicBool::new(false);

// Interrupt commands.
const NMI: u32 = command::NMI << command::DELIVERY_SHIFT;
const INIT: u32 = command::INIT << command::DELIVERY_SHIFT;
const START_UP: u32 = command::START_UP << command::DELIVERY_SHIFT;
const ALL: u32 = command::ALL << command::SHORTHAND_SHIFT;
const OTHERS: u32 = command::OTHERS << command::SHORTHAND_SHIFT;
const VECTOR: u32 = 0x50;

fn main(cpu: usize) {
    let what = boot::command_line().split_whitespace().next().unwrap_or("idle-count");
    let prober = boot::number("cpu").unwrap_or(0);
    if cpu as u64 == prober {
        println!("prober: {what}");
        if !probe(what) {
            println!("prober: what is {what}?");
            halt();
        }
        println!("prober: still alive");
    }
    count(cpu);
}

/// Counts milliseconds, about, in word `cpu` of the shared block.
fn count(cpu: usize) -> ! {
    let mut answers = None;
    apic::start_timer(1_000_000);
    loop {
        wait_for_interrupt();
        if RANG.swap(false, Ordering::Relaxed) {
            answers = Some(boot::command_line().split_whitespace().skip(1));
        }
        if let Some(answer) = answers.as_mut().and_then(Iterator::next) {
            answer_doorbell(answer);
        }
        if let Some(words) = shared::words() {
            words[cpu].fetch_add(1, Ordering::Relaxed);
        }
        apic::start_timer(1_000_000);
    }
}

/// Does what a word on the command line says of the doorbell.
fn answer_doorbell(answer: &str) {
    match answer {
        "agrees" => println!("prober: agrees: {}", hypercall::call(HC_CELL_UNLOCK, 0, 0)),
        "breaks" => {
            probe("memory-write");
        }
        "tells" => {
            let letter = b'R' + hypercall::call(HC_ROOT_STATE, 0, 0) as u8;
            // SAFETY: The cell was given the debug port, or is stopped here.
            unsafe { Port::<u8>::new(0xe9).write(letter) };
        }
        _ => (),
    }
}

/// False if there is no such probe.
fn probe(what: &str) -> bool {
    let info = boot::info();
    // Somebody else's: the CPU that Linux starts on, unless told otherwise.
    let target = boot::number("target").unwrap_or(0) as u32;
    let address = boot::number("address").unwrap_or(info.private_size + 0x20_0000);
    let port: Port<u8> = Port::new(boot::number("port").unwrap_or(0x70) as u16);
    let mut port = port;
    let mut msr = Msr::new(boot::number("msr").unwrap_or(0x10a) as u32);
    // SAFETY: That it is not sound is the point: the hypervisor has to stop it. What it does not
    // stop is the cell's own.
    unsafe {
        match what {
            "idle-count" => (),
            "memory" => {
                (address as *const u64).read_volatile();
            }
            "memory-write" => (address as *mut u64).write_volatile(1),
            "memory-execute" => asm!("call {}", in(reg) address, clobber_abi("sysv64")),
            "apic-page" => {
                let command = (PAGE + Register::COMMAND.offset()) as *mut u32;
                command.write_volatile(NMI | OTHERS);
            }
            "port" => {
                port.read();
            }
            "port-write" => port.write(0),
            "msr-read" => println!("prober: register {:#x}", msr.read()),
            "msr-write" => msr.write(boot::number("value").unwrap_or(0)),
            "apic-base" => Msr::new(registers::APIC_BASE).write(0),
            "icr-foreign" => apic::send(target, ASSERT | VECTOR),
            "icr-foreign-nmi" => apic::send(target, ASSERT | NMI),
            "icr-logical" => {
                apic::send(x2apic_logical(target), ASSERT | LOGICAL | VECTOR);
            }
            "icr-init" => apic::send(target, ASSERT | INIT),
            "icr-start-up" => apic::send(target, ASSERT | START_UP),
            "icr-init-broadcast" => apic::send(0, ASSERT | INIT | OTHERS),
            "icr-broadcast" => apic::send(0, ASSERT | VECTOR | ALL),
            "icr-broadcast-id" => apic::send(command::X2APIC_EVERYBODY, ASSERT | VECTOR),
            // Interrupts with vectors of exceptions are left to whoever gets the CPU.
            "icr-pending" => {
                for vector in 16..32 {
                    apic::send(apic::id(), ASSERT | vector);
                }
                asm!("clgi");
            }
            "icr-broadcast-nmi" => apic::send(0, ASSERT | NMI | OTHERS),
            "vmrun" => asm!("vmrun rax", in("rax") 0x1000),
            "clgi" => asm!("clgi"),
            "skinit" => asm!("skinit eax", in("eax") 0),
            "monitor" => asm!("monitor", in("rax") 0x1000, in("ecx") 0, in("edx") 0),
            "invd" => asm!("invd"),
            "wbinvd" => asm!("wbinvd"),
            "step" => asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop"),
            "xsetbv" => {
                // Needs CR4.OSXSAVE.
                asm!("mov rax, cr4", "or rax, 0x40000", "mov cr4, rax", out("rax") _);
                asm!("xsetbv", in("ecx") 0, in("eax") 1, in("edx") 0x8000_0000u32);
            }
            "xsetbv-legal" => {
                asm!("mov rax, cr4", "or rax, 0x40000", "mov cr4, rax", out("rax") _);
                asm!("xsetbv", in("ecx") 0, in("eax") 3, in("edx") 0);
            }
            "efer-svme" => asm!(
                "rdmsr", "bts eax, 12", "wrmsr", "clgi",
                in("ecx") registers::EFER, out("rax") _, out("rdx") _
            ),
            "hypercall" => {
                let denied =
                    [HC_LEAVE, HC_CELL_CREATE, 999].map(|call| hypercall::call(call, 0, 0));
                println!("prober: {denied:?}");
            }
            "doorbell" => {
                let named = [0, 1, 2, 3, 255, 256, 1 << 32, DOORBELL_ANYWHERE];
                let rung = named.map(|cpu| hypercall::call(HC_DOORBELL, cpu, 0));
                println!("prober: rung {rung:?}");
            }
            "doorbell-flood" => loop {
                hypercall::call(HC_DOORBELL, DOORBELL_ANYWHERE, 0);
            },
            "cpuid" => cpuid(),
            "fill" => fill(),
            "keep" => keep(),
            "triple-fault" => {
                let none = [0u8; 10];
                asm!("lidt [{}]", "int3", in(reg) &none);
            }
            _ => return false,
        }
    }
    true
}

fn cpuid() {
    use core::arch::x86_64::__cpuid;
    let (basic, extended, signature) =
        (__cpuid(leaf::FEATURES), __cpuid(leaf::AMD_FEATURES), __cpuid(leaf::HYPERVISOR));
    println!(
        "prober: monitor {} x2apic {} hypervisor {} svm {} signature {:#x}",
        basic.ecx >> leaf::ECX_MONITOR & 1,
        basic.ecx >> leaf::ECX_X2APIC & 1,
        basic.ecx >> leaf::ECX_HYPERVISOR & 1,
        extended.ecx >> leaf::ECX_SVM & 1,
        signature.ebx
    );
}

/// Fills the private memory before and behind the image, each word with a mark and its address, the
/// last page of each block among them. Looks again and again whether a word changed: the shared
/// block tells how often it has looked, and how many words were others the last time.
fn keep() -> ! {
    const MARK: u64 = 0x5ec2_e701 << 32;
    const LOOKS: usize = 32;
    const OTHERS: usize = 33;
    let info = boot::info();
    let before = INITIAL_TABLES + INITIAL_TABLES_SIZE..IMAGE_ADDRESS;
    let behind = info.image_end.max(IMAGE_ADDRESS)..info.private_size;
    let words = before.chain(behind).step_by(8);
    for address in words.clone() {
        // SAFETY: Private memory that nothing else uses.
        unsafe { (address as *mut u64).write_volatile(MARK | address) };
    }
    loop {
        let others = words.clone().filter(|&address| {
            // SAFETY: Memory of the cell's own, whoever else writes there.
            let word = unsafe { (address as *const u64).read_volatile() };
            word != MARK | address
        });
        let others = others.count() as u64;
        if let Some(words) = shared::words() {
            words[OTHERS].store(others, Ordering::Relaxed);
            words[LOOKS].fetch_add(1, Ordering::Relaxed);
        }
        apic::start_timer(500_000_000);
        wait_for_interrupt();
    }
}

/// Says whether the private memory behind the image is clear, and fills it, to see whether anybody
/// finds that later.
fn fill() {
    const MARK: u64 = 0x5ec2_e700;
    let info = boot::info();
    let words = (info.image_end.max(IMAGE_ADDRESS)..info.private_size).step_by(8);
    let mut used = 0u64;
    for address in words {
        let word = address as *mut u64;
        // SAFETY: Private memory that nothing else uses.
        unsafe {
            used += u64::from(word.read_volatile() != 0);
            word.write_volatile(MARK << 32 | !MARK & 0xffff_ffff);
        }
    }
    println!("prober: {used} words were not clear");
}
