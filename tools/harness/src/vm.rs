// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running guest: boots it, runs scripts in it, tells how they ended.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crtos_agent::{CHUNK, Event, Input, Request, Terminal, receive, send};
use tempfile::TempDir;

use crate::disk::{self, Disk};
use crate::iommu::Iommu;
use crate::kernels::{self, Flavour, Kernel};
use crate::mesa::Card;
use crate::processor::Processor;
use crate::qemu::{Cards, Monitor, SHARE_TAG, Uarts};
use crate::{
    bochs, image, initramfs, layer, parts, paths, programs, progress, qemu, run, vfio_user,
};

/// What a kernel prints when it gives up.
const PANIC: &str = "Kernel panic - not syncing";
/// What the kernel prints shortly before it calibrates its timers: a quarter of a second on an idle
/// host.
const AHEAD: &str = "Freeing SMP alternatives";
/// What the kernel prints once it has calibrated its timers.
const CALIBRATED: &str = "smpboot: CPU0";
/// How often slow things are looked at: the console, the interrupt flag.
const POLL: Duration = Duration::from_millis(100);
/// How often the console is looked at while a timely reaction counts.
const FAST_POLL: Duration = Duration::from_millis(1);
/// How long a kernel may go on printing after it began to panic.
const LAST_WORDS: Duration = Duration::from_millis(700);
/// How long an emulator may take to connect its sockets.
const CONNECT_PATIENCE: Duration = Duration::from_secs(100);
/// How long a guest may take to boot when no limit was given.
pub const BOOT_PATIENCE: Duration = Duration::from_secs(400);
/// How many bytes from the console an error shows at most.
const CONSOLE_TAIL: usize = 3000;

/// What to do when the guest's kernel panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnPanic {
    /// Stop the machine and report the panic.
    Stop,
    /// Let the machine run until the timeout.
    Wait,
}

/// What emulates the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Emulator {
    /// Fast, with devices for everything.
    Qemu,
    /// Slow, and independent of QEMU: a second opinion about the processor.
    Bochs,
}

/// The machine that somebody wants.
#[derive(Debug, Clone)]
pub struct Config {
    /// What emulates it.
    pub emulator: Emulator,
    /// The kernel.
    pub kernel: Flavour,
    /// Number of CPUs.
    pub cpus: u32,
    /// Size of the memory, as QEMU writes it.
    pub memory: String,
    /// A folder for `/mnt/share`.
    pub share: Option<PathBuf>,
    /// Count instructions instead of time.
    pub icount: bool,
    /// No x2APIC.
    pub xapic: bool,
    /// The IOMMU.
    pub iommu: Iommu,
    /// A disk and network cards that master the bus by way of the IOMMU.
    pub devices: Option<Cards>,
    /// Two further UARTs.
    pub uarts: Option<Uarts>,
    /// A parallel port.
    pub parallel: bool,
    /// A network card by which the guest reaches what this machine does.
    pub network: bool,
    /// Two CAN controllers on one bus.
    pub can: bool,
    /// Cards of Mesa Electronics.
    pub mesa: Vec<Card>,
    /// Two devices that the IOMMU does not tell from each other.
    pub pair: bool,
    /// Parameters for the kernel beside those that emulation needs.
    pub boot_parameters: String,
    /// Debian packages beside those that are always there.
    pub packages: Vec<String>,
    /// The console log; a new file among the logs if none.
    pub console: Option<PathBuf>,
    /// Where the debug port writes.
    pub debugcon: Option<PathBuf>,
    /// Pipes of a monitor of QEMU.
    pub monitor: Option<PathBuf>,
    /// Plugins of QEMU, with their arguments.
    pub plugins: Vec<String>,
    /// What a panic means.
    pub on_panic: OnPanic,
    /// A whole Debian on this disk in place of the tests' root, with its own kernel.
    pub disk: Option<Disk>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            emulator: Emulator::Qemu,
            kernel: Flavour::V6_1,
            cpus: 4,
            memory: "2G".to_owned(),
            share: None,
            icount: false,
            xapic: false,
            iommu: Iommu::default(),
            devices: None,
            uarts: None,
            parallel: false,
            network: false,
            can: false,
            mesa: Vec::new(),
            pair: false,
            boot_parameters: String::new(),
            packages: vec![],
            console: None,
            debugcon: None,
            monitor: None,
            plugins: Vec::new(),
            on_panic: OnPanic::Stop,
            disk: None,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The script ended with this status.
    Exit(u8),
    /// The time was over first.
    Timeout,
    /// The guest's kernel panicked: what it said.
    Panic(String),
    /// The machine is gone: what is known about it.
    Gone(String),
    /// Somebody interrupted the harness.
    Interrupted,
}

/// What one run wants.
pub struct Job<'a> {
    /// For `bash -c`.
    pub script: String,
    /// Its standard input; none is an empty one.
    pub stdin: Option<Box<dyn Read + Send>>,
    /// A terminal for it, or pipes.
    pub terminal: Option<Terminal>,
    /// Where its standard output goes.
    pub stdout: &'a mut dyn Write,
    /// Where its standard error goes.
    pub stderr: &'a mut dyn Write,
    /// When it has to be over.
    pub deadline: Option<Instant>,
}

/// What the threads around a guest tell its owner.
enum News {
    Event(Event),
    Panic(String),
    Closed,
}

/// A guest that takes scripts.
pub struct Vm {
    emulator: Child,
    control: File,
    stdin: File,
    news: Receiver<News>,
    /// Ends the thread that watches the console.
    finished: Arc<AtomicBool>,
    console: PathBuf,
    /// The emulator's own messages.
    complaints: PathBuf,
    last_id: u32,
    _processor: Option<Processor>,
    _scratch: TempDir,
}

/// An emulator that has begun to boot a guest.
struct Started {
    emulator: Child,
    control: File,
    stdin: File,
    monitor: Option<Monitor>,
    processor: Option<Processor>,
}

/// Set once somebody wants the harness to end.
pub fn interrupted() -> &'static Arc<AtomicBool> {
    static FLAG: std::sync::OnceLock<Arc<AtomicBool>> = std::sync::OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

impl Vm {
    /// Makes what a guest consists of, where that is not there yet: its kernel, the layers of its
    /// root, and the agent.
    pub fn prepare(config: &Config) -> Result<(Kernel, Vec<PathBuf>, PathBuf)> {
        if let Some(disk) = &config.disk {
            let agent = parts::agent()?;
            return Ok((disk.ensure(&agent)?, vec![], agent));
        }
        let kernel = kernels::ensure(config.kernel)?;
        let mut layers = vec![image::ensure(&config.packages)?, kernel.modules_layer()];
        layers.extend(programs::layer()?);
        layers.extend(layer::installed()?);
        Ok((kernel, layers, parts::agent()?))
    }

    /// Boots a guest until it takes scripts. What fails before that is Linux under
    /// emulation, sometimes on a busy host; so it gets another chance.
    ///
    /// # Errors
    /// What went wrong, with the end of the console.
    pub fn boot(config: &Config, deadline: Option<Instant>) -> Result<Self> {
        let (kernel, layers, agent) = Self::prepare(config)?;
        let what = match &config.disk {
            Some(disk) => format!("boot {}", disk.release),
            None => format!("boot kernel {}", config.kernel),
        };
        let _step = progress::step(what);
        let deadline = deadline.unwrap_or_else(|| Instant::now() + BOOT_PATIENCE);
        let is_over = || interrupted().load(Ordering::Relaxed) || Instant::now() >= deadline;
        let attempt =
            || Self::start(config, &kernel, &layers, &agent)?.until_ready(config, deadline);
        attempt().or_else(|error| match error {
            error if is_over() => Err(error),
            error => {
                eprintln!("x: once more: {}", error.to_string().lines().next().unwrap_or_default());
                attempt()
            }
        })
    }

    /// Waits until a guest that was started takes scripts.
    fn until_ready(self, config: &Config, deadline: Instant) -> Result<Self> {
        let mut vm = self;
        match vm.next(Some(deadline)) {
            Ok(Event::Ready) => {}
            Ok(event) => bail!("the guest said {event:?} before it was ready"),
            Err(outcome) => {
                let reason = outcome.explain();
                bail!("the guest did not boot: {reason}\n{}", vm.console_tail())
            }
        }
        if config.share.is_some() {
            let (tag, folder) = (SHARE_TAG.to_owned(), "/mnt/share".to_owned());
            send(&mut vm.control, &Request::MountShare { tag, folder })?;
            match vm.next(Some(deadline)) {
                Ok(Event::Done(Ok(()))) => {}
                Ok(event) => bail!("the guest cannot mount the shared folder: {event:?}"),
                Err(outcome) => bail!("the guest ended: {}", outcome.explain()),
            }
        }
        Ok(vm)
    }

    fn start(config: &Config, kernel: &Kernel, layers: &[PathBuf], agent: &Path) -> Result<Self> {
        let scratch = tempfile::Builder::new().prefix("crtos-vm-").tempdir()?;
        let console = console_file(config, scratch.path())?;
        let complaints = scratch.path().join("complaints");
        let begin = match config.emulator {
            Emulator::Qemu => start_qemu,
            Emulator::Bochs => start_bochs,
        };
        let boot = Boot { config, kernel, layers, agent, console: &console };
        let Started { emulator, control, stdin, monitor, processor } =
            begin(&boot, scratch.path(), &complaints)?;
        let (tell, news) = sync_channel(16);
        let finished = Arc::new(AtomicBool::new(false));
        spawn({
            let (control, tell) = (control.try_clone()?, tell.clone());
            move || listen(control, &tell)
        });
        spawn({
            let (console, finished) = (console.clone(), finished.clone());
            let tell = (config.on_panic == OnPanic::Stop).then_some(tell);
            move || watch_console(&console, &finished, monitor, tell)
        });
        let (last_id, _processor, _scratch) = (0, processor, scratch);
        Ok(Self {
            emulator,
            control,
            stdin,
            news,
            finished,
            console,
            complaints,
            last_id,
            _processor,
            _scratch,
        })
    }

    /// Runs one script to its end.
    ///
    /// # Errors
    /// That the output could not be written, or the guest not be reached.
    pub fn run(&mut self, job: Job<'_>) -> Result<Outcome> {
        self.last_id += 1;
        let id = self.last_id;
        let Job { script, stdin, terminal, stdout, stderr, deadline } = job;
        let on_terminal = terminal.is_some();
        send(&mut self.control, &Request::Run { id, script, terminal })?;
        let port = self.stdin.try_clone()?;
        match stdin {
            Some(source) => drop(spawn(move || feed(source, port, id, on_terminal))),
            None => feed(std::io::empty(), port, id, false),
        }
        loop {
            match self.next(deadline) {
                Ok(Event::Stdout(bytes)) => {
                    stdout.write_all(&bytes).and_then(|()| stdout.flush())?
                }
                Ok(Event::Stderr(bytes)) => {
                    stderr.write_all(&bytes).and_then(|()| stderr.flush())?
                }
                Ok(Event::Exit(Ok(status))) => return Ok(Outcome::Exit(status)),
                Ok(Event::Exit(Err(reason))) => bail!("the guest cannot run it: {reason}"),
                Ok(Event::Ready | Event::Done(_)) => {}
                Err(outcome) => return Ok(outcome),
            }
        }
    }

    /// Shuts down a guest with a disk of its own, which has everything on it then. Returns how the
    /// machine ended if that is not how it should.
    ///
    /// # Errors
    /// The guest cannot be reached.
    pub fn shut_down(&mut self, limit: Duration) -> Result<Option<Outcome>> {
        let _step = progress::step("shut down");
        let deadline = Instant::now() + limit;
        self.last_id += 1;
        let script = "systemctl poweroff".to_owned();
        send(&mut self.control, &Request::Run { id: self.last_id, script, terminal: None })?;
        loop {
            match self.next(Some(deadline)) {
                Ok(_) => {}
                Err(Outcome::Gone(_)) if self.emulator.wait()?.success() => return Ok(None),
                Err(outcome) => return Ok(Some(outcome)),
            }
        }
    }

    /// Runs a script without input and returns its outcome and all its output.
    pub fn capture(&mut self, script: &str, limit: Duration) -> Result<(Outcome, String)> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let outcome = self.run(Job {
            script: script.to_owned(),
            stdin: None,
            terminal: None,
            stdout: &mut stdout,
            stderr: &mut stderr,
            deadline: Some(Instant::now() + limit),
        })?;
        stdout.extend(stderr);
        Ok((outcome, String::from_utf8_lossy(&stdout).into_owned()))
    }

    /// A way to send requests while a script runs.
    pub fn remote(&self) -> Result<File> {
        Ok(self.control.try_clone()?)
    }

    /// The next event, or why there will be none.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Event, Outcome> {
        loop {
            if interrupted().load(Ordering::Relaxed) {
                return Err(Outcome::Interrupted);
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            match self.news.recv_timeout(left.unwrap_or(POLL).min(POLL)) {
                Ok(News::Event(event)) => return Ok(event),
                Ok(News::Panic(text)) => return Err(Outcome::Panic(text)),
                Ok(News::Closed) | Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left.is_zero()) => {
                    return Err(Outcome::Timeout);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Why the machine went away.
    fn gone(&mut self) -> Outcome {
        if interrupted().load(Ordering::Relaxed) {
            return Outcome::Interrupted;
        }
        let console = read_lossy(&self.console);
        if let Some(text) = panic_text(&console) {
            return Outcome::Panic(text);
        }
        let status = self.emulator.wait();
        let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        let complaints = complaints(&self.complaints);
        Outcome::Gone(format!("the emulator ended, {status}\n{complaints}"))
    }

    /// The console log.
    pub fn console(&self) -> &Path {
        &self.console
    }

    /// The end of the console log.
    pub fn console_tail(&self) -> String {
        let text = read_lossy(&self.console);
        let start = text.len().saturating_sub(CONSOLE_TAIL);
        let start = (start..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(start);
        format!("--- console: {}\n{}", self.console.display(), text[start..].trim_end())
    }

    /// Removes the console log: nobody will want to read it.
    pub fn forget_console(&self) {
        // It may have been removed by somebody else, which is as good.
        let _ = fs::remove_file(&self.console);
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.finished.store(true, Ordering::Relaxed);
        // All that the guest keeps is in its memory, so it need not shut down.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl Outcome {
    /// A sentence about it.
    pub fn explain(&self) -> String {
        match self {
            Self::Exit(status) => format!("exit status {status}"),
            Self::Timeout => "the time is over".to_owned(),
            Self::Panic(text) => format!("its kernel panicked: {text}"),
            Self::Gone(text) => text.clone(),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// The file for the console: the one asked for, or a new one. It is made here, so
/// that it is there before the emulator writes to it.
fn console_file(config: &Config, scratch: &Path) -> Result<PathBuf> {
    let file = config.console.clone().unwrap_or_else(|| {
        let unique = scratch.file_name().unwrap_or_default().to_string_lossy();
        paths::logs().join(format!("{unique}-{}.console", config.kernel))
    });
    fs::create_dir_all(paths::logs())?;
    File::create(&file).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// What a guest is booted from.
struct Boot<'a> {
    config: &'a Config,
    kernel: &'a Kernel,
    layers: &'a [PathBuf],
    agent: &'a Path,
    console: &'a Path,
}

fn start_qemu(boot: &Boot<'_>, scratch: &Path, complaints: &Path) -> Result<Started> {
    let Boot { config, kernel, layers, agent, console } = boot;
    let initramfs = match &config.disk {
        Some(_) => disk::initramfs(kernel),
        None => {
            let initramfs = scratch.join("initramfs");
            initramfs::write(kernel, kernels::EARLY, agent, &[], &initramfs)?;
            initramfs
        }
    };
    let share = config.share.as_deref().map(fs::canonicalize).transpose();
    let share = share.context("the folder to share")?;
    let processor = match (config.icount, config.plugins.is_empty()) {
        (true, _) => Processor::take()?,
        (false, false) => Some(Processor::take_or_share()?),
        (false, true) => None,
    };
    let machine = qemu::Machine {
        kernel,
        initramfs: &initramfs,
        layers,
        root: config.disk.as_ref().map(|disk| disk.file.as_path()),
        cpus: config.cpus,
        memory: &config.memory,
        share: share.as_deref(),
        icount: config.icount,
        xapic: config.xapic,
        iommu: &config.iommu,
        devices: config.devices,
        uarts: config.uarts,
        parallel: config.parallel,
        network: config.network,
        can: config.can,
        mesa: &config.mesa,
        pair: config.pair,
        boot_parameters: &config.boot_parameters,
        console,
        debugcon: config.debugcon.as_deref(),
        monitor: config.monitor.as_deref(),
        plugins: &config.plugins,
        processor: processor.as_ref().map(Processor::number),
        sockets: scratch,
    };
    if config.devices.is_some() {
        File::create(machine.disk())?.set_len(qemu::DISK_SIZE)?;
    }
    let control = UnixListener::bind(machine.control_socket())?;
    let stdin = UnixListener::bind(machine.stdin_socket())?;
    let monitor = UnixListener::bind(machine.monitor_socket())?;
    let listeners = config.mesa.iter().map(|card| UnixListener::bind(machine.card_socket(*card)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    let mut qemu = machine
        .command()?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(complaints)?)
        .spawn()
        .context("start QEMU")?;
    let mut connect = |listener: UnixListener| {
        listener.set_nonblocking(true)?;
        let accept = || Ok(OwnedFd::from(listener.accept()?.0));
        wait_for_connection(accept, &mut qemu, complaints)
    };
    let (control, stdin, monitor) = (connect(control)?, connect(stdin)?, connect(monitor)?);
    for (card, listener) in config.mesa.iter().zip(listeners) {
        let (stream, function) = (connect(listener)?, card.make());
        // It ends when the machine does.
        spawn(move || vfio_user::serve(stream, function));
    }
    let monitor = config.icount.then(|| Monitor::new(monitor)).transpose()?;
    Ok(Started { emulator: qemu, control, stdin, monitor, processor })
}

fn start_bochs(boot: &Boot<'_>, scratch: &Path, complaints: &Path) -> Result<Started> {
    let Boot { config, kernel, layers, agent, console } = boot;
    if config.share.is_some() || config.icount || config.debugcon.is_some() {
        bail!("Bochs shares no folder, and has neither a debug port nor virtual time");
    }
    if config.monitor.is_some() || !config.mesa.is_empty() || config.disk.is_some() {
        bail!("Bochs has no monitor, no cards that others play, and no disks");
    }
    let bochs = bochs::ensure()?;
    let initramfs = scratch.join("initramfs");
    initramfs::write(kernel, bochs::MODULES, agent, layers, &initramfs)?;
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (control, stdin) = (listen()?, listen()?);
    let machine = bochs::Machine {
        kernel,
        initramfs: &initramfs,
        cpus: config.cpus,
        memory: &config.memory,
        boot_parameters: &config.boot_parameters,
        console,
        control: control.local_addr()?,
        stdin: stdin.local_addr()?,
        scratch,
    };
    let mut emulator = bochs.start(&machine, complaints)?;
    let mut connect = |listener: TcpListener| {
        listener.set_nonblocking(true)?;
        let accept = || Ok(OwnedFd::from(listener.accept()?.0));
        wait_for_connection(accept, &mut emulator, complaints)
    };
    let (control, stdin) = (connect(control)?, connect(stdin)?);
    Ok(Started { emulator, control, stdin, monitor: None, processor: None })
}

/// Waits for the emulator to connect: `accept` would block before. Both kinds of sockets are files
/// from then on.
fn wait_for_connection(
    accept: impl Fn() -> io::Result<OwnedFd>,
    emulator: &mut Child,
    complaints: &Path,
) -> Result<File> {
    let start = Instant::now();
    loop {
        match accept() {
            // Linux: what was accepted blocks, whatever its listener does.
            Ok(stream) => return Ok(File::from(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(2)),
            Err(error) => return Err(error).context("wait for the emulator to connect"),
        }
        if let Some(status) = emulator.try_wait()? {
            bail!("the emulator does not start, {status}\n{}", self::complaints(complaints));
        }
        if start.elapsed() > CONNECT_PATIENCE {
            bail!("the emulator does not connect to the harness");
        }
    }
}

/// Passes on what the guest says.
fn listen(mut control: File, tell: &SyncSender<News>) {
    while let Ok(event) = receive(&mut control) {
        if tell.send(News::Event(event)).is_err() {
            return;
        }
    }
    // If nobody listens any more, nobody needs to know.
    let _ = tell.send(News::Closed);
}

/// Sends all of `source` to a run. A terminal stays open at its end: the person
/// there ends the input with a character.
fn feed(mut source: impl Read, mut port: File, id: u32, on_terminal: bool) {
    let mut bytes = vec![0; CHUNK];
    loop {
        let length = match source.read(&mut bytes) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        if length == 0 && on_terminal {
            return;
        }
        let input = Input { id, bytes: bytes[..length].to_vec() };
        if send(&mut port, &input).is_err() || length == 0 {
            return;
        }
    }
}

/// Looks at the console for a panic, and guards the calibration of the timers
/// if there is a monitor to do that with.
fn watch_console(
    console: &Path,
    finished: &AtomicBool,
    monitor: Option<Monitor>,
    tell: Option<SyncSender<News>>,
) {
    let Ok(mut file) = File::open(console) else { return };
    let mut text = String::new();
    let mut calibration = monitor.map(Calibration::Ahead);
    while !finished.load(Ordering::Relaxed) {
        let mut bytes = Vec::new();
        if file.read_to_end(&mut bytes).is_err() {
            return;
        }
        text.push_str(&String::from_utf8_lossy(&bytes));
        calibration = calibration.and_then(|state| state.guard(&text));
        if let (true, Some(tell)) = (text.contains(PANIC), &tell) {
            sleep(LAST_WORDS);
            // If nobody listens any more, nobody needs to know.
            let _ = tell.send(News::Panic(panic_text(&text).unwrap_or_default()));
            return;
        }
        // A text that is looked for may come in two pieces.
        let keep = text.len().saturating_sub(PANIC.len());
        if let Some(keep) = (keep..text.len()).find(|&i| text.is_char_boundary(i)) {
            text.drain(..keep);
        }
        sleep(if calibration.is_some() { FAST_POLL } else { POLL });
    }
}

/// How far the guest is with calibrating its timers, while instructions count as
/// time. Reading the timer's count (MSR 0x839) from within a block of instructions
/// aborts QEMU, so it runs them one by one as long as Linux does that.
enum Calibration {
    Ahead(Monitor),
    Running(Monitor),
}

impl Calibration {
    /// Switches the mode when the console says so; nothing is left once it is over.
    fn guard(self, text: &str) -> Option<Self> {
        match self {
            Self::Ahead(mut monitor) if text.contains(AHEAD) => {
                one_by_one(&mut monitor, "on").then_some(Self::Running(monitor))
            }
            Self::Running(mut monitor) if text.contains(CALIBRATED) => {
                one_by_one(&mut monitor, "off");
                None
            }
            state => Some(state),
        }
    }
}

fn one_by_one(monitor: &mut Monitor, mode: &str) -> bool {
    let result = monitor.command(&format!("one-insn-per-tb {mode}"));
    if let Err(error) = &result {
        eprintln!("warning: QEMU cannot change how it counts: {error:#}");
    }
    result.is_ok()
}

/// The line in which a kernel says why it panicked.
fn panic_text(console: &str) -> Option<String> {
    let line = console.lines().find(|line| line.contains(PANIC))?;
    Some(line.trim().to_owned())
}

/// What the emulator complained about, but for what QEMU always says about the processor.
fn complaints(file: &Path) -> String {
    let text = read_lossy(file);
    let lines = text.lines().filter(|line| !line.contains("TCG doesn't support requested feature"));
    run::tail(&lines.collect::<Vec<_>>().join("\n"))
}

fn read_lossy(file: &Path) -> String {
    fs::read(file).map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned())
}
