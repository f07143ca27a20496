// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x vm`: a guest for one command.

use std::io::{ErrorKind, IsTerminal, stderr, stdin, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, builder::FalseyValueParser};
use crtos_agent::{Request, Terminal, send};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGINT, SIGTERM, SIGWINCH};

use crate::bench::turns::Turns;
use crate::disk::{Disk, Release};
use crate::iommu::Iommu;
use crate::kernels::{self, Flavour};
use crate::mesa::Card;
use crate::qemu::{Cards, NETWORK_CARD, Uarts};
use crate::vm::{Config, Emulator, Job, OnPanic, Outcome, Vm, interrupted};
use crate::{FAILURE, parts, progress, qemu, quote, setup};

/// Exit status when the time is over, as timeout(1) has it.
const TIMED_OUT: u8 = 124;
/// Exit status after SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;
/// Exit status after SIGPIPE, as shells have it.
const NO_READER: u8 = 141;
/// How long the realm may take to start.
const REALM_PATIENCE: Duration = Duration::from_secs(200);

/// How long a guest may take to shut down.
const SHUT_DOWN_PATIENCE: Duration = Duration::from_secs(400);

/// Environment variable that stands for `--no-build`.
pub const NO_BUILD: &str = "CRTOS_NO_BUILD";

/// Options of `./x vm`.
#[derive(Args)]
pub struct Options {
    /// What emulates the machine.
    #[arg(long, value_enum, default_value_t = Emulator::Qemu)]
    emulator: Emulator,
    /// Debian's kernel to boot.
    #[arg(long, default_value = "6.1")]
    kernel: Flavour,
    /// Number of CPUs; the realm takes the last one.
    #[arg(long, default_value_t = 4)]
    smp: u32,
    /// Size of the memory.
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    mem: String,
    /// A whole Debian of that release with systemd and its own kernel, on a disk: what the command
    /// changes is there for the next guest, since the guest is shut down when the command has ended
    #[arg(long, value_enum, value_name = "RELEASE", requires = "disk",
        conflicts_with_all = ["kernel", "packages"])]
    debian: Option<Release>,
    /// The file that is the disk; a new one with all that DKMS needs if there is none
    #[arg(long, value_name = "FILE", requires = "debian")]
    disk: Option<PathBuf>,
    /// A folder that the guest sees at /mnt/share, to read and write.
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Virtual time is the number of executed instructions.
    #[arg(long)]
    icount: bool,
    /// Virtual CPUs that are busy advance nearly alike, when the command begins.
    #[arg(long, requires = "icount")]
    short_turns: bool,
    /// Leave the realm alone: Linux only.
    #[arg(long)]
    no_realm: bool,
    /// Take the staging tree as it is instead of building first.
    #[arg(long, env = NO_BUILD, value_parser = FalseyValueParser::new())]
    no_build: bool,
    /// A machine without x2APIC and IOMMU.
    #[arg(long)]
    xapic: bool,
    /// The IOMMU: `amd`, then options of QEMU's device amd-iommu; or options of intel-iommu, such
    /// as x-scalable-mode=on. AMD's kind runs on a newer QEMU, which is fetched and not installed.
    #[arg(long, default_value = "", value_name = "OPTIONS", hide_default_value = true)]
    iommu: Iommu,
    /// A disk and two network cards on one wire, which master the bus by way of the IOMMU
    #[arg(long, value_enum, value_name = "CARDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "e1000e")]
    devices: Option<Cards>,
    /// Two further UARTs, ttyS1 and ttyS2, wired to each other
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, require_equals = true,
        default_missing_value = "isa")]
    uarts: Option<Uarts>,
    /// Two CAN controllers on one bus, can0 and can1
    #[arg(long)]
    can: bool,
    /// A parallel port, at the I/O ports 0x378 to 0x37f; what is sent there is lost
    #[arg(long)]
    parallel: bool,
    /// Cards of Mesa Electronics, which the harness plays for a newer QEMU, to be fetched and not
    /// installed; with Intel's IOMMU they need `--iommu caching-mode=on`
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CARDS")]
    mesa: Vec<Card>,
    /// Twice two functions of one slot, which the IOMMU does not tell apart: 00:1c.0 and 00:1c.1,
    /// 00:18.0 and 00:18.1
    #[arg(long)]
    pair: bool,
    /// Parameters for the guest's kernel, such as `isolcpus=3`.
    #[arg(long, default_value = "", value_name = "PARAMETERS", allow_hyphen_values = true)]
    boot_parameters: String,
    /// Debian packages that the guest needs in addition.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    packages: Vec<String>,
    /// A network card by which the guest reaches what this machine does; nothing reaches the guest
    #[arg(long)]
    network: bool,
    /// Stop the machine so many seconds after it was started, with exit status 124.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Write the serial console there.
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    /// Write there what the guest writes to I/O port 0xe9.
    #[arg(long, value_name = "FILE")]
    debugcon: Option<PathBuf>,
    /// Take commands of QEMU's monitor from PIPE.in, and answer in PIPE.out: both have to be there.
    #[arg(long, value_name = "PIPE")]
    monitor: Option<PathBuf>,
    /// What a panic of the guest's kernel does to the machine.
    #[arg(long, value_enum, default_value_t = OnPanic::Stop)]
    on_panic: OnPanic,
    /// What to run: a script if it is one word, else a program and its arguments;
    /// a shell if nothing.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Boots a guest, runs the command in it and returns its exit status.
pub fn vm(options: Options) -> Result<u8> {
    watch_signals()?;
    setup::ensure()?;
    let disk = options.debian.zip(options.disk);
    let disk = disk.map(|(release, file)| Disk { release, file });
    // What such a Debian has of crtos was installed there.
    let no_realm = options.no_realm || disk.is_some();
    if !options.no_build && disk.is_none() {
        // The module is built for those that are there.
        kernels::ensure(options.kernel)?;
        parts::build(&[])?;
    }
    let limit = options.timeout.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.context("the timeout")?;
    // QEMU has mapped the file when the guest is up.
    let turns = options.short_turns.then(Turns::new).transpose()?;
    let newer = qemu::is_newer(options.xapic, &options.iommu, options.devices, &options.mesa);
    let config = Config {
        emulator: options.emulator,
        kernel: disk.as_ref().map_or(options.kernel, |disk| disk.release.kernel()),
        cpus: options.smp,
        memory: options.mem,
        share: options.share,
        icount: options.icount,
        xapic: options.xapic,
        iommu: options.iommu,
        devices: options.devices,
        uarts: options.uarts,
        parallel: options.parallel,
        network: options.network,
        can: options.can,
        mesa: options.mesa,
        pair: options.pair,
        boot_parameters: options.boot_parameters,
        packages: options.packages,
        console: options.console,
        debugcon: options.debugcon,
        monitor: options.monitor,
        plugins: turns.iter().map(|turns| turns.plugin(newer)).collect::<Result<_>>()?,
        on_panic: options.on_panic,
        disk,
    };
    let script = match options.command.as_slice() {
        [] => "exec bash".to_owned(),
        words => quote::script(words)?,
    };
    // What has to be made for the first guest of a kind is no part of the guest's time.
    Vm::prepare(&config)?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut vm = match Vm::boot(&config, deadline) {
        Err(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
            eprintln!("x vm: the time was over before the guest had booted");
            return Ok(TIMED_OUT);
        }
        vm => vm?,
    };
    if config.network {
        start_network(&mut vm)?;
    }
    if !no_realm {
        start_realm(&mut vm, &config)?;
    }
    if let Some(turns) = turns {
        turns.set(true)?;
    }
    let outcome = run_here(&mut vm, script, deadline);
    if outcome.as_ref().is_err_and(is_broken_pipe) {
        return Ok(NO_READER);
    }
    let outcome = outcome?;
    let ended = match (&config.disk, &outcome) {
        (Some(_), Outcome::Exit(_)) => vm.shut_down(SHUT_DOWN_PATIENCE)?,
        _ => None,
    };
    Ok(report(&vm, &config, &ended.unwrap_or(outcome)))
}

/// Makes the signals that end a program end the guest first.
pub fn watch_signals() -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted().clone())?;
    }
    Ok(())
}

/// Gives the last CPU and 512 MiB to the real-time realm.
pub fn start_realm(vm: &mut Vm, config: &Config) -> Result<()> {
    let _step = progress::step("start the real-time realm");
    let last = config.cpus.saturating_sub(1);
    let script = format!("modprobe crtos && crtos up --cpus {last} --memory 512M");
    let (outcome, text) = vm.capture(&script, REALM_PATIENCE)?;
    if outcome == Outcome::Exit(0) {
        return Ok(());
    }
    anyhow::bail!(
        "the realm does not start, {}\n{}\n{}",
        outcome.explain(),
        text.trim_end(),
        vm.console_tail()
    )
}

/// Gives the card of `--network` the address that QEMU's network has for it.
fn start_network(vm: &mut Vm) -> Result<()> {
    let script = format!(
        r#"set -e
        modprobe virtio_net
        card=$(grep -l {NETWORK_CARD} /sys/class/net/*/address)
        card=$(basename "$(dirname "$card")")
        ip address add 10.0.2.15/24 dev "$card"
        ip link set "$card" up
        ip route add default via 10.0.2.2
        echo nameserver 10.0.2.3 >/etc/resolv.conf"#
    );
    let (outcome, text) = vm.capture(&script, REALM_PATIENCE)?;
    if outcome == Outcome::Exit(0) {
        return Ok(());
    }
    anyhow::bail!("the guest's network does not start, {}\n{text}", outcome.explain())
}

/// Runs a script with the standard streams of this process.
fn run_here(vm: &mut Vm, script: String, deadline: Option<Instant>) -> Result<Outcome> {
    let raw =
        (stdin().is_terminal() && stdout().is_terminal()).then(RawTerminal::new).transpose()?;
    if raw.is_some() {
        follow_window(vm)?;
    }
    vm.run(Job {
        script,
        stdin: Some(Box::new(stdin())),
        terminal: raw.as_ref().map(|_| window()),
        stdout: &mut stdout(),
        stderr: &mut stderr(),
        deadline,
    })
}

/// Whether it says that nobody reads our output any more.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The exit status for an outcome; says on standard error what is no exit status.
fn report(vm: &Vm, config: &Config, outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Exit(status) => {
            if config.console.is_none() {
                vm.forget_console();
            }
            *status
        }
        Outcome::Timeout => {
            eprintln!("x vm: the time is over; console: {}", vm.console().display());
            TIMED_OUT
        }
        Outcome::Interrupted => INTERRUPTED,
        Outcome::Panic(_) | Outcome::Gone(_) => {
            eprintln!("x vm: the guest ended: {}\n{}", outcome.explain(), vm.console_tail());
            FAILURE
        }
    }
}

/// The terminal in raw mode, until this is dropped.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn new() -> Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // There is nothing left to try if it fails.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Size and kind of the terminal in front of us.
fn window() -> Terminal {
    let kind = std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned());
    match tcgetwinsize(stdout()) {
        Ok(size) => Terminal { rows: size.ws_row, columns: size.ws_col, kind },
        Err(_) => Terminal { rows: 24, columns: 80, kind },
    }
}

/// Tells the guest whenever the size of the terminal changes.
fn follow_window(vm: &Vm) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGWINCH])?;
    let mut control = vm.remote()?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if send(&mut control, &Request::Resize(window())).is_err() {
                return;
            }
        }
    });
    Ok(())
}
