// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures that programs and Linux's ABI exchange, as linux-raw-sys has them, but of plain
//! numbers, so that they can be read from and written to memory of a program as bytes.
//!
//! Every field is an allegation of the program until it has been checked. Fields that nobody here
//! looks at are named as Linux does, and are what Linux's own zeros would be when a structure is
//! written.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structures {
    ($($(#[$attribute:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => { $(
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[allow(missing_docs, reason = "the fields are those of Linux's structure")]
        pub struct $name { $(pub $field: $type,)* }
    )* };
}

structures! {
    /// `struct stat`: fstat(2). Times are in seconds and nanoseconds.
    struct Stat {
        device: u64,
        inode: u64,
        links: u64,
        mode: u32,
        uid: u32,
        gid: u32,
        padding: u32,
        device_of_file: u64,
        size: i64,
        block_size: i64,
        blocks: i64,
        accessed: [u64; 2],
        modified: [u64; 2],
        changed: [u64; 2],
        unused: [i64; 3],
    }

    /// `struct statfs`: fstatfs(2).
    struct StatFs {
        kind: u64,
        block_size: u64,
        blocks: [u64; 3],
        files: [u64; 2],
        id: [u32; 2],
        name_length: u64,
        fragment_size: u64,
        flags: u64,
        spare: [u64; 4],
    }

    /// `struct statx`: statx(2), without what lies behind the four times.
    struct Statx {
        mask: u32,
        block_size: u32,
        attributes: u64,
        links: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        padding: u16,
        inode: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        times: [[u64; 2]; 4],
        devices: [u32; 4],
        more: [u64; 14],
    }

    /// `struct rusage`: getrusage(2). Times are in seconds and microseconds, sizes in KiB.
    struct Rusage {
        user_time: [u64; 2],
        system_time: [u64; 2],
        largest_resident: u64,
        sizes: [u64; 3],
        faults: [u64; 2],
        swaps: u64,
        blocks: [u64; 2],
        messages: [u64; 2],
        signals: u64,
        voluntary_switches: u64,
        involuntary_switches: u64,
    }

    /// `struct clone_args`: clone3(2).
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }

    /// `struct pollfd`: poll(2).
    struct PollFd {
        fd: i32,
        events: u16,
        found: u16,
    }

    /// `struct flock`: fcntl(2).
    struct Flock {
        kind: i16,
        whence: i16,
        padding: u32,
        start: i64,
        length: i64,
        pid: i32,
        padding_behind: u32,
    }

    /// `struct msghdr`: sendmsg(2).
    struct MsgHdr {
        name: u64,
        name_length: u32,
        padding: u32,
        vector: u64,
        vector_length: u64,
        control: u64,
        control_length: u64,
        flags: u32,
        more_padding: u32,
    }

    /// `struct cmsghdr`: what lies in the control part of a message, before its data.
    struct CMsgHdr {
        length: u64,
        level: u32,
        kind: u32,
    }

    /// `struct kernel_sigaction`: rt_sigaction(2).
    struct SigAction {
        handler: u64,
        flags: u64,
        restorer: u64,
        mask: u64,
    }

    /// `struct robust_list_head`: set_robust_list(2).
    struct RobustListHead {
        first: u64,
        offset: i64,
        pending: u64,
    }

    /// `struct shmid64_ds`: shmctl(2). The times are those of the last attachment, detachment and
    /// change, in seconds.
    struct ShmStatus {
        permissions: [u64; 6],
        size: u64,
        times: [u64; 3],
        pids: [u32; 2],
        attached: u64,
        unused: [u64; 2],
    }
}

/// Of personality(2): programs that are executed do not lie at random addresses.
pub const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
/// Of personality(2): uname(2) tells a version 2.6.
pub const UNAME26: u32 = 0x002_0000;

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use linux_raw_sys::{general as linux, net};

    use super::*;

    macro_rules! same {
        ($ours:ty, $theirs:ty, $($field:ident: $theirs_field:ident),*) => {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), stringify!($ours));
            $( assert_eq!(
                offset_of!($ours, $field), offset_of!($theirs, $theirs_field),
                concat!(stringify!($ours), "::", stringify!($field))
            ); )*
        };
    }

    #[test]
    fn structures_are_those_of_linux() {
        same!(Stat, linux::stat, device: st_dev, inode: st_ino, links: st_nlink, mode: st_mode,
            uid: st_uid, gid: st_gid, device_of_file: st_rdev, size: st_size,
            block_size: st_blksize, blocks: st_blocks, accessed: st_atime, modified: st_mtime,
            changed: st_ctime);
        same!(StatFs, linux::statfs, kind: f_type, block_size: f_bsize, blocks: f_blocks,
            files: f_files, id: f_fsid, name_length: f_namelen, fragment_size: f_frsize,
            flags: f_flags, spare: f_spare);
        same!(Statx, linux::statx, mask: stx_mask, block_size: stx_blksize,
            attributes: stx_attributes, links: stx_nlink, uid: stx_uid, gid: stx_gid,
            mode: stx_mode, inode: stx_ino, size: stx_size, blocks: stx_blocks,
            attributes_mask: stx_attributes_mask, times: stx_atime, devices: stx_rdev_major);
        same!(Rusage, linux::rusage, user_time: ru_utime, system_time: ru_stime,
            largest_resident: ru_maxrss, sizes: ru_ixrss, faults: ru_minflt, swaps: ru_nswap,
            blocks: ru_inblock, messages: ru_msgsnd, signals: ru_nsignals,
            voluntary_switches: ru_nvcsw, involuntary_switches: ru_nivcsw);
        same!(CloneArgs, linux::clone_args, flags: flags, pidfd: pidfd, child_tid: child_tid,
            parent_tid: parent_tid, exit_signal: exit_signal, stack: stack, stack_size: stack_size,
            tls: tls, set_tid: set_tid, set_tid_size: set_tid_size, cgroup: cgroup);
        same!(PollFd, linux::pollfd, fd: fd, events: events, found: revents);
        same!(Flock, linux::flock, kind: l_type, whence: l_whence, start: l_start, length: l_len,
            pid: l_pid);
        same!(MsgHdr, net::msghdr, name: msg_name, name_length: msg_namelen, vector: msg_iov,
            vector_length: msg_iovlen, control: msg_control, control_length: msg_controllen,
            flags: msg_flags);
        same!(CMsgHdr, net::cmsghdr, length: cmsg_len, level: cmsg_level, kind: cmsg_type);
        same!(SigAction, linux::kernel_sigaction, handler: sa_handler_kernel, flags: sa_flags,
            restorer: sa_restorer, mask: sa_mask);
        same!(RobustListHead, linux::robust_list_head, first: list, offset: futex_offset,
            pending: list_op_pending);
    }

    #[test]
    fn status_of_a_segment_is_that_of_linux() {
        assert_eq!(size_of::<ShmStatus>(), size_of::<libc::shmid_ds>());
        assert_eq!(offset_of!(ShmStatus, size), offset_of!(libc::shmid_ds, shm_segsz));
        assert_eq!(offset_of!(ShmStatus, times), offset_of!(libc::shmid_ds, shm_atime));
        assert_eq!(offset_of!(ShmStatus, attached), offset_of!(libc::shmid_ds, shm_nattch));
    }
}
