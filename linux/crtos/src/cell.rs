// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos cell`: cells for bare-metal programs (inmates).

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Subcommand;
use crtos_abi::{
    LARGE_PAGE_SIZE,
    cell::{CELL_NAME_LEN, MsrRange, PortRange},
    ids::RealmCpu,
};
use serde::Serialize;

use crate::{
    code::Code,
    cpulist::CpuList,
    device::{self, Device},
    devices::{self, Manner},
    failure::{Asked, Failure, Result},
    kvm::Kvm,
    link::Joined,
    loader, locked,
    machine::Machine,
    ranges,
    report::{self, Report, State},
    requirements,
    silent::silent_cpus,
    size::{self, Size},
    start::{self, Interruption, Wanted},
    state::{self, Loaded, Remembered},
    text::{BAD, GOOD, table},
};

/// Make and control cells for bare-metal programs
///
/// A cell has CPUs, memory, and the I/O ports and registers that it is given; whatever it does
/// outside of that stops it, and it alone. `crtos cell list` then tells what it did. The real-time
/// realm is a cell as well, with commands of its own: `crtos up`, `crtos down`.
///
/// CELL is a name or a number.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos cell create demo --cpus 2 --memory 16M --port 0xe9
  crtos cell create motor --cpus 3 --device 03:00.0
  crtos cell start demo /usr/lib/crtos/inmates/latency.elf --command-line 'period=1000'
  crtos cell list
  crtos cell shared demo --length 64
  crtos cell restart demo
  crtos cell destroy demo

Exit status: 0 done; 1 refused or failed; 2 usage.")]
pub struct Cell {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Take CPUs and memory from Linux and make a cell of them; prints its number
    ///
    /// Launches the hypervisor if necessary. Beside its private memory each cell shares a block of
    /// 2 MiB with Linux.
    Create(Create),
    /// Copy an ELF file into a cell that does not run
    Load {
        /// Name or number
        cell: String,
        /// Static ELF file, linked at the cell's addresses
        file: PathBuf,
        /// Command line that the program finds in its boot information
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        command_line: String,
    },
    /// Start a cell with what was loaded last, or with FILE
    ///
    /// The program is copied again, so that it starts with its initial memory.
    Start {
        /// Name or number
        cell: String,
        /// Static ELF file, linked at the cell's addresses
        file: Option<PathBuf>,
        /// Command line that the program finds in its boot information
        #[arg(long, value_name = "TEXT")]
        command_line: Option<String>,
    },
    /// Lock a cell that runs: from now on only its own program ends it
    ///
    /// Linux cannot stop, load, reset or destroy the cell any more, nor reset the machine, until
    /// the program unlocks the cell or the power is cut. If Linux tries to reset the machine, it is
    /// halted.
    Lock {
        /// Name or number
        cell: String,
    },
    /// Stop a cell; its memory stays as it is
    Stop {
        /// Name or number
        cell: String,
    },
    /// Stop a cell if it runs, and start it again
    Restart {
        /// Name or number
        cell: String,
    },
    /// Stop a cell and give Linux back what it had
    Destroy {
        /// Name or number
        cell: String,
    },
    /// List the cells: state, CPUs, memory, and how failed ones failed
    ///
    /// For root it also tells of CPUs of the real-time realm that do not answer. It interrupts each
    /// of them once for that, and waits 2 s for one that is silent.
    ///
    /// With --json an array of objects: cell, name, state (created, running, locked, stopped,
    /// failed), cpus, silent_cpus (null where nobody is asked), private_bytes, shared_bytes,
    /// failure (null, or: cpu, reason, rip, address, code, qualification).
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show, or with --write change, the block that a cell shares with Linux
    Shared(Shared),
    /// Ring the doorbell of a cell
    Doorbell {
        /// Name or number
        cell: String,
    },
}

#[derive(clap::Args)]
struct Create {
    /// Name of the cell
    #[arg(value_parser = name)]
    name: String,
    /// CPUs, such as 3 or 2-3,6; never the boot CPU
    #[arg(long, value_name = "LIST")]
    cpus: CpuList,
    /// Private memory, which Linux cannot touch
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::with_unit)]
    memory: Size,
    /// Memory shared with Linux beside the block that each cell shares
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::with_unit)]
    shared: Size,
    /// I/O ports, such as 0xe9 or 0x3f8-0x3ff:exclusive (then Linux may not use them); repeatable
    #[arg(long = "port", value_name = "RANGE", value_parser = ranges::ports)]
    ports: Vec<PortRange>,
    /// Model-specific registers, such as 0xc0010000-0xc0010003:rw; to write only those that Linux
    /// may write as well; repeatable
    #[arg(long = "msr", value_name = "RANGE", value_parser = ranges::msrs)]
    msrs: Vec<MsrRange>,
    /// A link that the cell has (`crtos link create`), such as plant, or plant:2 to be peer 2;
    /// repeatable
    #[arg(long = "link", value_name = "NAME[:PEER]")]
    links: Vec<Joined>,
    /// A PCI function that the cell has, such as 0000:03:00.0, eth1 or 8086:10d3; repeatable
    ///
    /// As by `crtos device add --cell`, which gives the cell further ones.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<String>,
    #[command(flatten)]
    manner: Manner,
}

#[derive(clap::Args)]
struct Shared {
    /// Name or number
    cell: String,
    /// Offset of the first byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    offset: Size,
    /// Number of bytes
    #[arg(long, value_name = "SIZE", default_value = "256", conflicts_with = "write")]
    length: Size,
    /// Print the bytes unformatted
    #[arg(long, conflicts_with = "write")]
    raw: bool,
    /// Copy FILE to the block instead (- is standard input)
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Reads a cell's name.
fn name(text: &str) -> std::result::Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() >= CELL_NAME_LEN || !text.chars().all(good) {
        return Err(format!(
            "a name has 1 to {} letters, digits, `-`, `_`, `.`",
            CELL_NAME_LEN - 1
        ));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a name that is a number could not be told from a cell's number".into());
    }
    Ok(text.to_string())
}

/// A cell in JSON.
#[derive(Serialize)]
struct Row<'a> {
    cell: u32,
    name: &'a str,
    state: &'static str,
    cpus: Vec<u32>,
    /// Of the realm, if the user may ask: those that do not answer.
    silent_cpus: Option<Vec<u32>>,
    private_bytes: u64,
    shared_bytes: u64,
    failure: Option<FailureRow>,
}

#[derive(Serialize)]
struct FailureRow {
    cpu: u32,
    reason: &'static str,
    rip: u64,
    address: u64,
    code: u64,
    qualification: u64,
}

impl Cell {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        match self.verb {
            Verb::Create(create) => create.run(),
            Verb::Load { cell, file, command_line } => {
                let target = Target::find(&format!("load cell {cell}"), &cell)?;
                target.refuse_running()?;
                target.load(&file, &command_line).map(drop)
            }
            Verb::Start { cell, file, command_line } => {
                let target = Target::find(&format!("start cell {cell}"), &cell)?;
                target.refuse_running()?;
                target.start(file, command_line)
            }
            Verb::Lock { cell } => Target::find(&format!("lock cell {cell}"), &cell)?.lock(),
            Verb::Stop { cell } => Target::find(&format!("stop cell {cell}"), &cell)?.stop(),
            Verb::Restart { cell } => {
                let target = Target::find(&format!("restart cell {cell}"), &cell)?;
                target.stop()?;
                target.start(None, None)
            }
            Verb::Destroy { cell } => {
                let target = Target::find(&format!("destroy cell {cell}"), &cell)?;
                target.refuse_realm("`crtos down` ends it")?;
                target
                    .device
                    .destroy(target.number, false)
                    .map_err(|refusal| refusal.asked(&target.asked))?;
                state::forget(target.number);
                Ok(())
            }
            Verb::List { json } => list(json),
            Verb::Shared(shared) => shared.run(),
            Verb::Doorbell { cell } => {
                let target = Target::find(&format!("ring the doorbell of cell {cell}"), &cell)?;
                let rung = target.device.doorbell(target.number, RealmCpu::first());
                rung.map_err(|refusal| refusal.asked(&target.asked))
            }
        }
    }
}

impl Create {
    fn run(self) -> Result<()> {
        let asked = format!("create cell {}", self.name);
        let machine = Machine::here();
        requirements::root(&machine, &asked, "only root may take CPUs and memory from Linux")?;
        let interruption = Interruption::watch();
        // Dropped after the device: it comes back when the hypervisor has left.
        let mut kvm = Kvm::default();
        let device = start::open_device(&machine, &asked)?;
        let info = device.info(&asked)?;
        if info.enabled != 0 {
            let report = device.report(&asked)?;
            if report.cells.iter().any(|cell| cell.name == self.name) {
                return Err(Failure::new(
                    Code::CellExists,
                    asked,
                    "there is a cell of that name already",
                )
                .remedy("choose another name; `crtos cell list` shows the cells"));
            }
        }
        let (private, shared) = (self.memory.whole_blocks(), self.shared.whole_blocks());
        if private == Size(0) {
            return Err(Failure::new(
                Code::MemoryTooSmall,
                asked,
                "a cell needs private memory for its program",
            )
            .remedy("`--memory 16M`"));
        }
        requirements::cpus(&machine, &self.cpus, &device::cell_cpus(&info))?;
        requirements::memory(&machine, Size(private.0 + shared.0))?;
        let giving = |device: &str| format!("give {device} to a cell");
        let find = |name: &String| devices::choose(&machine, &giving(name), name);
        let devices = self.devices.iter().map(find).collect::<Result<Vec<_>>>()?;
        let wanted = Wanted {
            name: &self.name,
            cpus: &self.cpus,
            linux_cpu: requirements::linux_cpu(&machine, None, &self.cpus)?,
            private,
            shared,
            launch: 0,
            flags: 0,
            ports: &self.ports,
            msrs: &self.msrs,
        };
        let created = start::create(&machine, &device, &asked, &wanted, &mut kvm);
        if created.is_err() && interruption.signal().is_none() {
            start::show_logs(&device, None);
        }
        let (number, mut facts) = created?;
        for link in &self.links {
            interruption.check(&asked)?;
            facts.links |= link.join(&device, &asked, number)?;
        }
        for target in &devices {
            interruption.check(&asked)?;
            target.add(&giving(&target.to_string()), &device, number, self.manner)?;
        }
        interruption.check(&asked)?;
        state::remember(number, &Remembered { name: self.name, facts, loaded: None })?;
        device.keep().map_err(|refusal| refusal.asked(asked))?;
        kvm.keep_away();
        println!("{number}");
        Ok(())
    }
}

/// A cell that exists.
struct Target {
    device: Device,
    asked: String,
    number: u32,
    state: State,
    is_realm: bool,
}

impl Target {
    /// Finds a cell by its name or number.
    fn find(asked: &str, cell: &str) -> Result<Self> {
        let device = Device::require(asked)?;
        let info = device.info(asked)?;
        if info.enabled == 0 {
            return Err(device::not_up(asked));
        }
        let report = device.report(asked)?;
        let Some(found) = report.named(cell) else {
            return Err(no_such_cell(asked, &report));
        };
        let number = found.number;
        let state = found.state;
        let is_realm = device::realm(&info) == Some(number);
        Ok(Self { device, asked: asked.to_string(), number, state, is_realm })
    }

    fn refuse_running(&self) -> Result<()> {
        self.refuse_realm("`crtos down` and `crtos up` restart it")?;
        match self.state {
            State::Running => Err(Failure::new(Code::CellState, &self.asked, "it runs")
                .remedy(format!("`crtos cell stop {}` stops it", self.number))),
            State::Locked => Err(Failure::new(Code::CellLocked, &self.asked, "it is locked")
                .remedy("its own program has to unlock it; nothing else does")),
            _ => Ok(()),
        }
    }

    fn refuse_realm(&self, remedy: &str) -> Result<()> {
        match self.is_realm {
            true => Err(Failure::new(Code::IsTheRealm, &self.asked, "it is the real-time realm")
                .remedy(remedy)),
            false => Ok(()),
        }
    }

    fn lock(&self) -> Result<()> {
        self.refuse_realm("`crtos down`, then `crtos up --locked`")?;
        locked::check(&Machine::here(), &self.asked)?;
        self.device.lock(self.number).map_err(|refusal| refusal.asked(&self.asked))?;
        locked::tell(&Machine::here());
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        self.refuse_realm("`crtos down` ends it")?;
        self.device.stop(self.number).map_err(|refusal| refusal.asked(&self.asked))
    }

    /// Loads a program. Returns its entry address.
    fn load(&self, file: &Path, command_line: &str) -> Result<u64> {
        let mut remembered = state::recall(self.number).ok_or_else(|| {
            Failure::new(
                Code::CellState,
                &self.asked,
                "the command that created it was killed before it was done",
            )
            .remedy(format!("`crtos cell destroy {}`, and create it again", self.number))
        })?;
        let file = file.canonicalize().asked(format!("load {}", file.display()))?;
        let loadable =
            loader::layout(&requirements::image(&file)?, &remembered.facts, command_line).map_err(
                |error| Failure::new(Code::ImageUnfit, format!("load {}", file.display()), error),
            )?;
        let interruption = Interruption::watch();
        start::load(&self.device, &self.asked, self.number, &loadable, &interruption)?;
        remembered.loaded = Some(Loaded { file, command_line: command_line.to_string() });
        state::remember(self.number, &remembered)?;
        Ok(loadable.entry)
    }

    /// Loads the program again and starts the cell.
    fn start(&self, file: Option<PathBuf>, command_line: Option<String>) -> Result<()> {
        let last = state::recall(self.number).and_then(|remembered| remembered.loaded);
        let (file, usual) = match (file, last) {
            (Some(file), _) => (file, String::new()),
            (None, Some(last)) => (last.file, last.command_line),
            (None, None) => {
                return Err(Failure::new(
                    Code::CellState,
                    &self.asked,
                    "nothing was loaded into it",
                )
                .remedy(format!("`crtos cell start {} FILE`", self.number)));
            }
        };
        let entry = self.load(&file, &command_line.unwrap_or(usual))?;
        self.device.start(self.number, entry).map_err(|refusal| refusal.asked(&self.asked))
    }
}

fn no_such_cell(asked: &str, report: &Report) -> Failure {
    let names: Vec<_> =
        report.cells.iter().map(|cell| format!("{} ({})", cell.name, cell.number)).collect();
    let remedy = match names.is_empty() {
        true => "`crtos cell create` makes one".to_string(),
        false => format!("there are {}", names.join(", ")),
    };
    Failure::new(Code::CellUnknown, asked, "no such cell").remedy(remedy)
}

fn list(json: bool) -> Result<()> {
    let asked = "list the cells";
    let device = Device::require(asked)?;
    let info = device.info(asked)?;
    if info.enabled == 0 {
        return Err(device::not_up(asked));
    }
    let report = device.report(asked)?;
    // Other users may not ring.
    let silent = device::realm(&info)
        .and_then(|realm| Some((realm, silent_cpus(&device, realm, &report.cpus_of(realm)).ok()?)));
    let silent_of = |cell: &report::Cell| {
        silent.as_ref().filter(|(realm, _)| *realm == cell.number).map(|(_, cpus)| cpus.clone())
    };
    let rows: Vec<_> =
        report.cells.iter().map(|cell| row(cell, silent_of(cell), &report)).collect();
    if json {
        return crate::print_json(&rows);
    }
    let rows = report.cells.iter().map(|cell| {
        let style = match cell.state {
            State::Running | State::Locked => GOOD,
            State::Failed => BAD,
            _ => anstyle::Style::new(),
        };
        vec![
            cell.number.to_string(),
            cell.name.clone(),
            format!("{style}{}{style:#}", cell.state.name()),
            report.cpus_of(cell.number).to_string(),
            Size(cell.private_bytes).to_string(),
            Size(cell.shared_bytes).to_string(),
        ]
    });
    let header = ["CELL", "NAME", "STATE", "CPUS", "PRIVATE", "SHARED"];
    anstream::println!("{}", table(&header, &[0, 4, 5], rows.collect()));
    for cell in &report.cells {
        if let Some(breach) = cell.breach {
            anstream::println!("{}: {}", cell.name, breach.sentence());
        }
        for cpu in silent_of(cell).into_iter().flatten() {
            anstream::println!(
                "{}: {BAD}CPU {cpu} does not answer{BAD:#}: its threads stand still",
                cell.name
            );
        }
    }
    Ok(())
}

fn row<'a>(cell: &'a report::Cell, silent: Option<Vec<u32>>, report: &Report) -> Row<'a> {
    Row {
        cell: cell.number,
        name: &cell.name,
        state: cell.state.name(),
        cpus: report.cpus_of(cell.number).iter().collect(),
        silent_cpus: silent,
        private_bytes: cell.private_bytes,
        shared_bytes: cell.shared_bytes,
        failure: cell.breach.map(|breach| FailureRow {
            cpu: breach.cpu,
            reason: breach.reason(),
            rip: breach.rip,
            address: breach.address,
            code: breach.code,
            qualification: breach.qualification,
        }),
    }
}

impl Shared {
    fn run(self) -> Result<()> {
        let asked = format!("use the shared block of cell {}", self.cell);
        let target = Target::find(&asked, &self.cell)?;
        let (number, offset) = (target.number, self.offset.0);
        let beyond = |length: u64| {
            offset.checked_add(length).is_none_or(|end| end > LARGE_PAGE_SIZE).then(|| {
                Failure::new(
                    Code::OutOfBounds,
                    &asked,
                    format!("it ends at {}", Size(LARGE_PAGE_SIZE)),
                )
                .remedy("choose a smaller offset or length")
            })
        };
        if let Some(file) = self.write {
            let path = if file == Path::new("-") { Path::new("/dev/stdin") } else { &file };
            let bytes = fs::read(path).asked(format!("read {}", file.display()))?;
            if let Some(failure) = beyond(bytes.len() as u64) {
                return Err(failure);
            }
            let written = target.device.write_channel(number, offset, &bytes);
            return written.map_err(|refusal| refusal.asked(&asked));
        }
        if let Some(failure) = beyond(self.length.0) {
            return Err(failure);
        }
        let mut bytes = vec![0; self.length.0 as usize];
        let read = target.device.channel_bytes(number, offset, &mut bytes);
        read.map_err(|refusal| refusal.asked(&asked))?;
        if self.raw {
            return std::io::stdout().write_all(&bytes).asked("write to standard output");
        }
        for (index, line) in bytes.chunks(16).enumerate() {
            println!("{}", dump(offset + index as u64 * 16, line));
        }
        Ok(())
    }
}

/// Formats a line of at most 16 bytes as `hexdump -C` does.
fn dump(offset: u64, bytes: &[u8]) -> String {
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let letters: String = bytes
        .iter()
        .map(|byte| if (0x20..0x7f).contains(byte) { *byte as char } else { '.' })
        .collect();
    format!("{offset:08x}  {:<47}  |{letters}|", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_no_numbers() {
        assert!(name("demo-1.a_B").is_ok());
        for text in ["", "3", "two words", "a/b", "ä", &"x".repeat(32)] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dumps_look_like_those_of_hexdump() {
        assert_eq!(
            dump(16, b"hello\0"),
            "00000010  68 65 6c 6c 6f 00                                |hello.|"
        );
    }
}
