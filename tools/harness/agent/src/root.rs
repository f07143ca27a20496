// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the initramfs to the guest's root.
//!
//! The root is an overlay: one read-only squashfs disk per layer, and a tmpfs
//! on top that vanishes with the machine. Where the initramfs holds the layers,
//! a loop device makes a disk of each.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crtos_agent::{IMAGES, LAYER_SERIAL};
use rustix::ioctl::{IntegerSetter, ioctl};
use rustix::mount::{MountFlags, mount, mount_move};

/// Modules of the initramfs, in the order of their names.
const MODULES: &str = "/modules";
/// Makes a loop device a disk of the file with this descriptor.
const LOOP_SET_FD: u32 = 0x4c00;
/// How long a disk may take to appear.
const DISK_PATIENCE: Duration = Duration::from_secs(20);

/// Makes the layered root the root of this process, with all that a Debian
/// system expects to be mounted.
pub fn enter() -> Result<()> {
    mount_at("devtmpfs", "/dev", "")?;
    mount_at("proc", "/proc", "")?;
    mount_at("sysfs", "/sys", "")?;
    load_modules()?;
    let layers = mount_layers()?;
    mount_at("tmpfs", "/rw", "size=75%,mode=755")?;
    for folder in ["/rw/upper", "/rw/work"] {
        fs::create_dir(folder).with_context(|| format!("make {folder}"))?;
    }
    let lower: Vec<_> = layers.iter().rev().map(|p| p.display().to_string()).collect();
    let options = format!("lowerdir={},upperdir=/rw/upper,workdir=/rw/work", lower.join(":"));
    mount_at("overlay", "/root", &options)?;
    for folder in ["dev", "proc", "sys"] {
        let (from, to) = (format!("/{folder}"), format!("/root/{folder}"));
        mount_move(&from, &to).with_context(|| format!("move {from} to {to}"))?;
    }
    switch_root("/root")?;
    mount_the_rest();
    Ok(())
}

/// Mounts a file system without a device, making the folder first.
fn mount_at(kind: &str, folder: &str, options: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {folder}"))?;
    let options = std::ffi::CString::new(options)?;
    mount(kind, folder, kind, MountFlags::empty(), Some(options.as_c_str()))
        .with_context(|| format!("mount {kind} on {folder}"))
}

/// Loads every module of the initramfs; one that the kernel has already is fine.
fn load_modules() -> Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES)
        .context("list the modules of the initramfs")?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    for path in files {
        let file = fs::File::open(&path)?;
        match rustix::system::finit_module(&file, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).context(format!("load {}", path.display())),
        }
    }
    Ok(())
}

/// Mounts all layers, lowest first.
fn mount_layers() -> Result<Vec<PathBuf>> {
    let disks = match attach_images()? {
        images if images.is_empty() => await_disks()?,
        images => images,
    };
    let mut layers = Vec::new();
    for (number, device) in disks {
        let folder = PathBuf::from(format!("/layers/{number}"));
        fs::create_dir_all(&folder)?;
        mount(&device, &folder, "squashfs", MountFlags::RDONLY, None)
            .with_context(|| format!("mount {}", device.display()))?;
        layers.push(folder);
    }
    Ok(layers)
}

/// The disks that are layers, once they have appeared.
fn await_disks() -> Result<Vec<(u32, PathBuf)>> {
    let start = Instant::now();
    loop {
        let disks = layer_disks()?;
        // The kernel finds them all in one go, so the first one is as good as the last.
        if !disks.is_empty() {
            return Ok(disks);
        }
        if start.elapsed() > DISK_PATIENCE {
            bail!("no disk with a serial number `{LAYER_SERIAL}N` appeared");
        }
        sleep(Duration::from_millis(10));
    }
}

/// Makes a disk of each layer in the initramfs.
fn attach_images() -> Result<Vec<(u32, PathBuf)>> {
    let mut disks = Vec::new();
    for entry in fs::read_dir(IMAGES).context("list the layers of the initramfs")? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().parse()?;
        let device = PathBuf::from(format!("/dev/loop{number}"));
        let (disk, image) = (fs::File::open(&device), fs::File::open(entry.path())?);
        let disk = disk.with_context(|| format!("open {}", device.display()))?;
        let descriptor = usize::try_from(image.as_raw_fd())?;
        // SAFETY: The call takes a descriptor by its number, and touches no memory of the caller.
        unsafe { ioctl(&disk, IntegerSetter::<LOOP_SET_FD>::new_usize(descriptor)) }
            .with_context(|| format!("attach {}", device.display()))?;
        disks.push((number, device));
    }
    disks.sort();
    Ok(disks)
}

/// The disks that are layers, sorted by their number.
fn layer_disks() -> Result<Vec<(u32, PathBuf)>> {
    let mut disks = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let Ok(serial) = fs::read_to_string(entry.path().join("serial")) else { continue };
        let number = serial.trim().strip_prefix(LAYER_SERIAL).and_then(|n| n.parse().ok());
        if let Some(number) = number {
            disks.push((number, Path::new("/dev").join(entry.file_name())));
        }
    }
    disks.sort();
    Ok(disks)
}

/// Puts `folder` in the place of `/`.
fn switch_root(folder: &str) -> Result<()> {
    std::env::set_current_dir(folder)?;
    mount_move(".", "/").context("move the new root")?;
    rustix::process::chroot(".").context("chroot")?;
    std::env::set_current_dir("/")?;
    Ok(())
}

/// What an init system sets up. A kernel may lack one of these, and most
/// programs do without; so a failure is told and nothing more.
fn mount_the_rest() {
    let mounts = [
        ("devpts", "/dev/pts", "mode=620,gid=5,ptmxmode=666"),
        ("tmpfs", "/dev/shm", ""),
        ("mqueue", "/dev/mqueue", ""),
        ("hugetlbfs", "/dev/hugepages", ""),
        ("tmpfs", "/run", "mode=755"),
        ("debugfs", "/sys/kernel/debug", ""),
        ("tracefs", "/sys/kernel/tracing", ""),
        ("cgroup2", "/sys/fs/cgroup", ""),
    ];
    for (kind, folder, options) in mounts {
        if let Err(error) = mount_at(kind, folder, options) {
            eprintln!("crtos-agent: {error:#}");
        }
    }
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("fd/0", "/dev/stdin"),
        ("fd/1", "/dev/stdout"),
        ("fd/2", "/dev/stderr"),
    ];
    for (to, from) in links {
        if let Err(error) = symlink(to, from) {
            eprintln!("crtos-agent: link {from}: {error}");
        }
    }
}
