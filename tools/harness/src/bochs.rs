// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second machine: Bochs, which shares no code with QEMU and emulates SVM with nested paging by
//! itself. It has no virtio and Debian's kernel has no drivers of its disks here, so the initramfs
//! holds the layers of the root, a CD that GRUB boots holds the initramfs, and serial lines carry
//! the agent's protocol.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use crate::foreign::{Packages, Tree};
use crate::kernels::Kernel;
use crate::run;

/// Modules that must be loaded before the root can be mounted.
pub const MODULES: &[&str] = &["loop", "squashfs", "overlay"];

/// Bochs 3.0, its firmware, and what makes a bootable CD.
const PACKAGES: Packages = Packages {
    name: "bochs",
    suites: &["trixie"],
    names: &[
        "bochs",
        "bochs-term",
        "bochsbios",
        "grub-common",
        "grub-pc-bin",
        "vgabios",
        "xorriso",
    ],
};
/// Modules of GRUB that load a kernel from a CD.
const GRUB_MODULES: &[&str] = &["biosdisk", "iso9660", "linux", "normal"];
/// The newest of Bochs' processors with SVM and nested paging.
const PROCESSOR: &str = "ryzen";
/// Instructions in a second of virtual time, of each CPU.
const INSTRUCTIONS_PER_SECOND: u32 = 50_000_000;
/// What the machine's memory is counted in, in configuration files.
const MEBIBYTE_PER_GIBIBYTE: u32 = 1024;

/// The packages, unpacked.
pub struct Bochs {
    tree: Tree,
}

/// A machine, and what it boots.
pub struct Machine<'a> {
    /// The kernel to boot.
    pub kernel: &'a Kernel,
    /// The initramfs for it, with the layers of the root.
    pub initramfs: &'a Path,
    /// Number of CPUs.
    pub cpus: u32,
    /// Size of the memory: a number and M or G.
    pub memory: &'a str,
    /// Parameters for the kernel beside those that emulation needs.
    pub boot_parameters: &'a str,
    /// Where the serial console goes.
    pub console: &'a Path,
    /// Where the line for requests and events connects to.
    pub control: SocketAddr,
    /// Where the line for standard input connects to.
    pub stdin: SocketAddr,
    /// A folder for the CD and the configuration.
    pub scratch: &'a Path,
}

/// Makes sure that Bochs is in the cache.
pub fn ensure() -> Result<Bochs> {
    Ok(Bochs { tree: Tree::ensure(&PACKAGES)? })
}

impl Bochs {
    /// Starts a machine.
    pub fn start(&self, machine: &Machine<'_>, complaints: &Path) -> Result<Child> {
        let disc = machine.scratch.join("disc.iso");
        self.make_disc(machine, &disc).context("make the CD that Bochs boots")?;
        let configuration = machine.scratch.join("bochsrc");
        fs::write(&configuration, self.configuration(machine, &disc)?)?;
        // Debian's Bochs has a debugger, which waits for a command.
        let commands = machine.scratch.join("commands");
        fs::write(&commands, "c\n")?;
        let mut bochs = self.tree.program("bochs-bin");
        bochs.args(["-q", "-f"]).arg(configuration).arg("-rc").arg(commands);
        bochs.env("LTDL_LIBRARY_PATH", self.tree.libraries().join("bochs/plugins"));
        bochs.env("BXSHARE", self.tree.path("usr/share/bochs")).env("TERM", "dumb");
        bochs.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(complaints)?);
        bochs.spawn().context("start Bochs")
    }

    fn make_disc(&self, machine: &Machine<'_>, disc: &Path) -> Result<()> {
        let content = machine.scratch.join("disc");
        let grub = content.join("boot/grub");
        fs::create_dir_all(&grub)?;
        let mut image = self.tree.program("grub-mkimage");
        image.args(["-O", "i386-pc-eltorito", "-p", "/boot/grub", "-d"]);
        image.arg(self.tree.path("usr/lib/grub/i386-pc"));
        image.arg("-o").arg(grub.join("eltorito.img")).args(GRUB_MODULES);
        run::quietly(&mut image)?;
        // On a busy host as on a fast one: the console is slow, and Linux waits for it.
        let line = "console=ttyS0,115200 tsc=reliable no_timer_check quiet";
        let menu = format!(
            "linux /boot/vmlinuz {line} {}\ninitrd /boot/initramfs\nboot\n",
            machine.boot_parameters
        );
        fs::write(grub.join("grub.cfg"), menu)?;
        fs::copy(machine.kernel.image(), content.join("boot/vmlinuz"))?;
        fs::rename(machine.initramfs, content.join("boot/initramfs"))?;
        let mut burn = self.tree.program("xorriso");
        burn.args(["-as", "mkisofs", "-quiet", "-R", "-b", "boot/grub/eltorito.img"]);
        burn.args(["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"]);
        burn.arg("-o").arg(disc).arg(&content);
        run::quietly(&mut burn)?;
        fs::remove_dir_all(content)?;
        Ok(())
    }

    fn configuration(&self, machine: &Machine<'_>, disc: &Path) -> Result<String> {
        let share = self.tree.path("usr/share");
        let share = share.display();
        let memory = mebibytes(machine.memory)?;
        let lines = [
            "config_interface: textconfig".to_owned(),
            "display_library: term".to_owned(),
            format!("memory: guest={memory}, host={memory}"),
            format!("romimage: file={share}/bochs/BIOS-bochs-latest"),
            format!("vgaromimage: file={share}/vgabios/vgabios.bin"),
            format!(
                "cpu: model={PROCESSOR}, count={}, ips={INSTRUCTIONS_PER_SECOND}, \
                 reset_on_triple_fault=0",
                machine.cpus
            ),
            "clock: sync=none".to_owned(),
            "boot: cdrom".to_owned(),
            "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14".to_owned(),
            format!("ata0-master: type=cdrom, path={}, status=inserted", disc.display()),
            format!("com1: enabled=1, mode=file, dev={}", machine.console.display()),
            format!("com2: enabled=1, mode=socket-client, dev={}", machine.control),
            format!("com3: enabled=1, mode=socket-client, dev={}", machine.stdin),
            format!("log: {}", machine.scratch.join("log").display()),
            "panic: action=fatal".to_owned(),
            "error: action=ignore".to_owned(),
            "info: action=ignore".to_owned(),
            "debug: action=ignore".to_owned(),
        ];
        Ok(lines.join("\n") + "\n")
    }
}

/// A size as QEMU writes it, in MiB.
fn mebibytes(size: &str) -> Result<u32> {
    let number = |digits: &str| digits.parse::<u32>().ok();
    let parsed = match (size.strip_suffix('M'), size.strip_suffix('G')) {
        (Some(digits), _) => number(digits),
        (_, Some(digits)) => number(digits).and_then(|n| n.checked_mul(MEBIBYTE_PER_GIBIBYTE)),
        _ => None,
    };
    parsed.with_context(|| format!("Bochs' memory is a number of M or G, not `{size}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_qemu() {
        assert_eq!(mebibytes("512M").unwrap(), 512);
        assert_eq!(mebibytes("2G").unwrap(), 2048);
        assert!(mebibytes("2").is_err());
        assert!(mebibytes("-1G").is_err());
    }
}
