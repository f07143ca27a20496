// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs what the host asks for, one script at a time.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::spawn;
use std::time::Duration;

use anyhow::{Context, Result};
use crtos_agent::{
    CHUNK, CONTROL_LINE, CONTROL_PORT, Event, Input, Request, STDIN_LINE, STDIN_PORT, Terminal,
    receive, send,
};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, speed, tcgetattr, tcsetattr, tcsetwinsize};

/// Where the virtio-serial ports are, on a machine that has virtio.
const PORTS: &str = "/sys/class/virtio-ports";
/// Where the programs of the tests are.
const PROGRAMS: &str = "/usr/lib/crtos-tests/programs";

/// What a pump tells about itself.
enum Note {
    /// It has a piece of output to send.
    Got,
    /// It has sent it.
    Sent,
}

/// How long output may stay silent after the script has ended, while a process
/// that it left behind still holds the other end.
const LINGER: Duration = Duration::from_millis(300);

/// Everything that the threads of the server share.
#[derive(Clone)]
struct Server {
    /// Where events go; the lock keeps messages whole.
    events: Arc<Mutex<File>>,
    /// The latest run.
    run: Arc<Mutex<Run>>,
    /// There is a later run than before.
    begun: Arc<Condvar>,
}

/// The latest run, as far as other threads need it.
#[derive(Default)]
struct Run {
    /// Runs are numbered from 1 on.
    id: u32,
    /// Where its input goes, until the end of the input.
    input: Option<File>,
    /// Its process group, while it runs.
    group: Option<Pid>,
    /// Its terminal, if it has one.
    terminal: Option<Arc<OwnedFd>>,
}

/// Takes the lock. A thread that panicked does not make the rest useless.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the host until the control port fails.
pub fn serve() -> Result<()> {
    prepare_system();
    let mut control = open_port(CONTROL_PORT, CONTROL_LINE)?;
    let stdin = open_port(STDIN_PORT, STDIN_LINE)?;
    let server = Server {
        events: Arc::new(Mutex::new(control.try_clone()?)),
        run: Arc::default(),
        begun: Arc::default(),
    };
    let feeder = server.clone();
    spawn(move || feeder.feed(stdin));
    server.tell(&Event::Ready)?;
    loop {
        match receive(&mut control).context("read a request")? {
            Request::MountShare { tag, folder } => {
                let result = mount_share(&tag, &folder).map_err(|e| format!("{e:#}"));
                server.tell(&Event::Done(result))?;
            }
            Request::Run { id, script, terminal } => {
                let server = server.clone();
                spawn(move || server.run_to_end(id, &script, terminal));
            }
            Request::Signal(number) => server.signal(number),
            Request::Resize(size) => server.resize(&size),
        }
    }
}

/// Host name and the loopback interface; neither is worth a failure.
fn prepare_system() {
    let name = fs::write("/proc/sys/kernel/hostname", "crtos");
    let link = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    if let Err(error) = name.and(link.map(drop)) {
        eprintln!("crtos-agent: {error}");
    }
}

/// Opens the virtio-serial port of that name, or the serial line in its place.
fn open_port(name: &str, line: &str) -> Result<File> {
    let Some(device) = find_port(name)? else {
        return open_line(line).context(format!("open {line}: there is no virtio port {name}"));
    };
    File::options().read(true).write(true).open(&device).context(format!("open {name}"))
}

/// Opens a serial line for bytes as they are.
fn open_line(line: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open(line)?;
    let mut settings = tcgetattr(&file)?;
    settings.make_raw();
    settings.set_speed(speed::B115200)?;
    tcsetattr(&file, OptionalActions::Now, &settings)?;
    Ok(file)
}

/// The device of a virtio-serial port, by the name that the host gave it. None on a machine
/// without virtio, whether its kernel has the drivers or not.
fn find_port(name: &str) -> Result<Option<PathBuf>> {
    if !Path::new(PORTS).exists() {
        return Ok(None);
    }
    for entry in fs::read_dir(PORTS).context("list the virtio ports")? {
        let entry = entry?;
        let found = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if found.trim() == name {
            return Ok(Some(Path::new("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}

/// Mounts the folder that the host shares.
fn mount_share(tag: &str, folder: &str) -> Result<()> {
    fs::create_dir_all(folder)?;
    let options = c"trans=virtio,version=9p2000.L,msize=262144,cache=mmap";
    mount(tag, folder, "9p", MountFlags::empty(), Some(options))
        .with_context(|| format!("mount the shared folder on {folder}"))
}

impl Server {
    fn tell(&self, event: &Event) -> Result<()> {
        Ok(send(&mut *lock(&self.events), event)?)
    }

    /// Passes input on to the run that it is for, which may be yet to begin. Input
    /// for an earlier run is stale.
    fn feed(&self, mut port: File) {
        while let Ok(Input { id, bytes }) = receive(&mut port) {
            let input = {
                let mut run = lock(&self.run);
                while run.id < id {
                    run = self.begun.wait(run).unwrap_or_else(PoisonError::into_inner);
                }
                if run.id > id {
                    continue;
                }
                if bytes.is_empty() {
                    run.input = None;
                }
                run.input.as_ref().and_then(|file| file.try_clone().ok())
            };
            // Without the lock: the program may take its time to read.
            let Some(mut input) = input else { continue };
            if input.write_all(&bytes).is_err() {
                lock(&self.run).input = None;
            }
        }
    }

    fn signal(&self, number: i32) {
        let group = lock(&self.run).group;
        if let (Some(group), Some(signal)) = (group, Signal::from_named_raw(number)) {
            // The group may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    }

    fn resize(&self, size: &Terminal) {
        if let Some(terminal) = lock(&self.run).terminal.as_ref() {
            let _ = tcsetwinsize(terminal, window(size));
        }
    }

    /// Runs a script, sends its output and at last its exit status.
    fn run_to_end(&self, id: u32, script: &str, terminal: Option<Terminal>) {
        let result = match terminal {
            Some(terminal) => self.run_on_terminal(id, script, &terminal),
            None => self.run_on_pipes(id, script),
        };
        self.register(Run { id, ..Run::default() });
        rustix::fs::sync();
        let result = result.map(shell_status).map_err(|e| format!("{e:#}"));
        if let Err(error) = self.tell(&Event::Exit(result)) {
            eprintln!("crtos-agent: report the exit status: {error:#}");
        }
    }

    fn run_on_pipes(&self, id: u32, script: &str) -> Result<ExitStatus> {
        let mut child = bash(script)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start bash")?;
        let stdin = child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        self.register(Run { id, input: stdin, group: group(&child), terminal: None });
        let (done, watch) = channel();
        if let Some(pipe) = child.stdout.take() {
            self.pump(pipe, Event::Stdout, done.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            self.pump(pipe, Event::Stderr, done.clone());
        }
        drop(done);
        let status = child.wait()?;
        wait_for_silence(&watch);
        Ok(status)
    }

    fn run_on_terminal(&self, id: u32, script: &str, size: &Terminal) -> Result<ExitStatus> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let main = openpt(flags).context("open a terminal")?;
        grantpt(&main)?;
        unlockpt(&main)?;
        tcsetwinsize(&main, window(size))?;
        let name = ptsname(&main, Vec::new())?.into_string()?;
        let side = File::options().read(true).write(true).open(&name).context("open a terminal")?;
        // setsid gives the shell the terminal as its controlling one.
        let mut child = Command::new("setsid");
        child.args(["--ctty", "bash", "-c", script]);
        let mut child = environment(&mut child)
            .env("TERM", &size.kind)
            .stdin(side.try_clone()?)
            .stdout(side.try_clone()?)
            .stderr(side)
            .spawn()
            .context("start a shell on a terminal")?;
        let main = File::from(main);
        let resize = Arc::new(OwnedFd::from(main.try_clone()?));
        let input = Some(main.try_clone()?);
        self.register(Run { id, input, group: group(&child), terminal: Some(resize) });
        let (done, watch) = channel();
        self.pump(main, Event::Stdout, done);
        let status = child.wait()?;
        wait_for_silence(&watch);
        Ok(status)
    }

    fn register(&self, run: Run) {
        *lock(&self.run) = run;
        self.begun.notify_all();
    }

    /// Sends what comes out of `from` until its end; `notes` tells what it does
    /// and is dropped at the end.
    fn pump(
        &self,
        mut from: impl Read + Send + 'static,
        wrap: fn(Vec<u8>) -> Event,
        notes: Sender<Note>,
    ) {
        let server = self.clone();
        spawn(move || {
            let mut bytes = vec![0; CHUNK];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                // None of these can fail while somebody listens.
                let _ = notes.send(Note::Got);
                let _ = server.tell(&wrap(bytes[..length].to_vec()));
                let _ = notes.send(Note::Sent);
            }
        });
    }
}

/// The process group that a child leads.
fn group(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Waits for the end of all output, or until it has been silent for [`LINGER`].
/// The time that the host takes to accept a piece is no silence.
fn wait_for_silence(notes: &Receiver<Note>) {
    let mut unsent = 0;
    loop {
        let note = if unsent > 0 {
            notes.recv().map_err(RecvTimeoutError::from)
        } else {
            notes.recv_timeout(LINGER)
        };
        match note {
            Ok(Note::Got) => unsent += 1,
            Ok(Note::Sent) => unsent -= 1,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A shell that runs `script` in root's home.
fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", script]);
    environment(&mut command);
    command
}

/// What a login of root would set.
fn environment(command: &mut Command) -> &mut Command {
    command
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .envs([("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root"), ("SHELL", "/bin/bash")])
        .envs([("LANG", "C.UTF-8"), ("TERM", "dumb"), ("PROGRAMS", PROGRAMS)])
        .current_dir("/root")
}

fn window(size: &Terminal) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The exit status as a shell shows it.
fn shell_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255)
}
