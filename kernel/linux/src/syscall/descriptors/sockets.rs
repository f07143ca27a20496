// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: those that are local, and those that an address makes so
//! ([`crate::files::socket`]).

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;

use crtos_abi::UserAddr;
use crtos_core::{
    mm::heap,
    task,
    time::{self, Nanos},
};
use crtos_syscalls::Row;
use crtos_syscalls::structs::MsgHdr;
use linux_raw_sys::{general as linux, net};

use super::{
    elsewhere, local,
    messages::{self, Room},
    remote, rights,
};
use crate::{
    abi::{Args, Errno, SysResult},
    files::{
        self, Description, Memory, Object,
        socket::{
            self, Address, MAX_ADDRESS, MAX_OPTION, Received, Reception, SendControl, Socket,
        },
    },
    memory::{timespec, user},
    process::ThreadExt as _,
    remote::note_option,
    signal,
};

/// Bytes of a `struct mmsghdr`: one message of recvmmsg(2) and sendmmsg(2), and where its length
/// is.
const MESSAGE: u64 = 64;
const MESSAGE_LENGTH: u64 = 56;
/// Bytes of an instruction of a filter (`struct sock_filter`).
const INSTRUCTION: usize = 8;
/// Bytes of a `struct sockaddr_storage`: no address is longer.
const LONGEST_ADDRESS: u64 = 128;

/// The socket that a file is.
fn socket_of(file: &Description) -> Result<&dyn Socket, Errno> {
    match &file.object {
        Object::Socket(socket) => Ok(&**socket),
        _ => Err(Errno::ENOTSOCK),
    }
}

/// The address of `length` bytes that a program gives.
fn address(at: UserAddr, length: u64) -> Result<Address, Errno> {
    let length = u64::from(length as u32);
    if length > LONGEST_ADDRESS {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; MAX_ADDRESS];
    let bytes = &mut bytes[..(length as usize).min(MAX_ADDRESS)];
    user::read(at, bytes)?;
    Ok(Address::new(bytes))
}

/// The local file of `fd`, which may become local because a program names an address. `None` if it
/// is Linux's.
fn local_by(fd: u64, at: UserAddr, length: u64) -> Result<Option<Arc<Description>>, Errno> {
    local_if(fd, at, length, socket::claim)
}

/// As [`local_by`], where `claim` says whether the address makes it so.
fn local_if(
    fd: u64,
    at: UserAddr,
    length: u64,
    claim: fn(u64, &Address) -> Result<bool, Errno>,
) -> Result<Option<Arc<Description>>, Errno> {
    if let Some(file) = files::find(fd) {
        return Ok(Some(file));
    }
    if at.is_null() || files::table()?.is_hidden(fd) {
        return Ok(None);
    }
    // What is no address, Linux complains of.
    let Ok(address) = address(at, length) else { return Ok(None) };
    let is_local = claim(fd, &address)?;
    Ok(if is_local { files::find(fd) } else { None })
}

/// bind(fd, address, length).
pub fn bind(row: &Row, args: Args) -> SysResult {
    let [fd, at, length, ..] = args;
    let at = UserAddr::new(at);
    let current = task::current();
    let process = &current.user().ok_or(Errno::ESRCH)?.process;
    let file = match process.wildcard.load(Ordering::Relaxed) {
        true => local_if(fd, at, length, socket::claim_wildcard)?,
        false => local_by(fd, at, length)?,
    };
    let Some(file) = file else { return remote(row, args) };
    socket_of(&file)?.bind(&address(at, length)?).map(|()| 0)
}

/// connect(fd, address, length).
pub fn connect(row: &Row, args: Args) -> SysResult {
    let [fd, at, length, ..] = args;
    let at = UserAddr::new(at);
    let Some(file) = local_by(fd, at, length)? else { return remote(row, args) };
    let (socket, address) = (socket_of(&file)?, address(at, length)?);
    match file.status() & linux::O_NONBLOCK != 0 {
        true => socket.connect_soon(&address)?,
        false => socket.connect(&address)?,
    }
    Ok(0)
}

/// listen(fd, backlog).
pub fn listen(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    socket_of(&file)?.listen(args[1] as u32).map(|()| 0)
}

/// accept(fd, address, length) and accept4(fd, address, length, flags).
pub fn accept(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    let [_, at, length, flags, ..] = args;
    let is_new = u32::from(row.number) == linux::__NR_accept4;
    // SOCK_CLOEXEC and SOCK_NONBLOCK are these flags of open(2).
    let flags = if is_new { flags as u32 } else { 0 };
    if flags & !(linux::O_CLOEXEC | linux::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let socket = socket_of(&file)?;
    let table = files::table()?;
    // A connection that is taken and has no number would be lost.
    if table.is_full()? {
        return Err(Errno::EMFILE);
    }
    let (connection, peer) = socket.accept(file.status() & linux::O_NONBLOCK != 0)?;
    let at = UserAddr::new(at);
    if !at.is_null() {
        let length = UserAddr::new(length);
        let room = user::read_u32(length)?;
        if (room as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        write_address(&peer, at, room)?;
        user::write_u32(length, peer.bytes().len() as u32)?;
    }
    let status = linux::O_RDWR | flags & linux::O_NONBLOCK;
    let opened = Description::open(Object::Socket(connection), status)?;
    table.insert(opened, 0, flags & linux::O_CLOEXEC != 0).map(u64::from)
}

/// getsockname(fd, address, length).
pub fn getsockname(row: &Row, args: Args) -> SysResult {
    name(row, args, false)
}

/// getpeername(fd, address, length).
pub fn getpeername(row: &Row, args: Args) -> SysResult {
    name(row, args, true)
}

fn name(row: &Row, args: Args, of_peer: bool) -> SysResult {
    let file = local!(row, args);
    let name = socket_of(&file)?.name(of_peer)?;
    let (at, length) = (UserAddr::new(args[1]), UserAddr::new(args[2]));
    let room = user::read_u32(length)?;
    if (room as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    write_address(&name, at, room)?;
    user::write_u32(length, name.bytes().len() as u32)?;
    Ok(0)
}

fn write_address(address: &Address, at: UserAddr, room: u32) -> Result<(), Errno> {
    let bytes = address.bytes();
    user::write(at, &bytes[..bytes.len().min(room as usize)])?;
    Ok(())
}

/// setsockopt(fd, level, name, value, length).
pub fn setsockopt(row: &Row, args: Args) -> SysResult {
    if files::find(args[0]).is_none() {
        claim_by_option(args)?;
        note_option(args[1], args[2]);
    }
    let file = local!(row, args);
    let [_, level, name, value, length, _] = args;
    let socket = socket_of(&file)?;
    let length = length as u32 as usize;
    if length as i32 as i64 != length as i64 || length > MAX_OPTION {
        return Err(Errno::EINVAL);
    }
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let mut bytes = alloc::vec![0; length];
    user::read(UserAddr::new(value), &mut bytes)?;
    socket.set_option(level as u32, name as u32, &bytes).map(|()| 0)
}

/// Has a socket of Linux's become the realm's, if it is to have to do with an interface of the
/// realm alone. Asks Linux only in that case.
fn claim_by_option(args: Args) -> Result<(), Errno> {
    let [fd, level, name, value, length, _] = args;
    /// Bytes of the longest value that names an interface.
    const LONGEST: usize = 32;
    let mut bytes = [0; LONGEST];
    let bytes = &mut bytes[..(length as u32 as usize).min(LONGEST)];
    // What is bad memory, Linux complains of.
    if user::read(UserAddr::new(value), bytes).is_ok() && !files::table()?.is_hidden(fd) {
        socket::claim_by_option(fd, level as u32, name as u32, bytes)?;
    }
    Ok(())
}

/// getsockopt(fd, level, name, value, length).
pub fn getsockopt(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    let [_, level, name, value, at, _] = args;
    let socket = socket_of(&file)?;
    let at = UserAddr::new(at);
    let room = user::read_u32(at)? as usize;
    if (room as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let value = UserAddr::new(value);
    if (level as u32, name as u32) == (net::SOL_SOCKET, net::SO_GET_FILTER) {
        return get_filter(&socket.filter()?, value, (at, room));
    }
    let bytes: Vec<u8> = socket.option_at(level as u32, name as u32, value)?;
    if !bytes.is_empty() && room < least_room(level as u32, name as u32) {
        return Err(Errno::EINVAL);
    }
    if bytes.len() > room && socket.tells_whole(level as u32, name as u32) {
        user::write_u32(at, bytes.len() as u32)?;
        return Err(Errno::ERANGE);
    }
    let bytes = &bytes[..bytes.len().min(room)];
    user::write(value, bytes)?;
    user::write_u32(at, bytes.len() as u32)?;
    Ok(0)
}

/// Tells the filter of a socket: how many instructions it has, at `at`, and these if there is room
/// for all of so many. Who has none only asks how many there are.
fn get_filter(program: &[u8], value: UserAddr, (at, room): (UserAddr, usize)) -> SysResult {
    let count = program.len() / INSTRUCTION;
    if room > 0 && count > room {
        return Err(Errno::EINVAL);
    }
    if room > 0 {
        user::write(value, program)?;
    }
    user::write_u32(at, count as u32)?;
    Ok(0)
}

/// Bytes of room that there has to be for the value of an option, where Linux wants some.
fn least_room(level: u32, name: u32) -> usize {
    match (level, name) {
        (net::SOL_SOCKET, net::SO_BINDTODEVICE) => net::IFNAMSIZ as usize,
        (net::SOL_SOCKET, net::SO_COOKIE) => size_of::<u64>(),
        _ => 0,
    }
}

/// shutdown(fd, how).
pub fn shutdown(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    socket_of(&file)?.shutdown(args[1] as u32).map(|()| 0)
}

/// sendto(fd, data, length, flags, address, length).
pub fn sendto(row: &Row, args: Args) -> SysResult {
    let [fd, data, length, flags, at, address_length] = args;
    let at = UserAddr::new(at);
    let Some(file) = local_by(fd, at, address_length)? else { return remote(row, args) };
    let socket = socket_of(&file)?;
    socket.check_way(flags as u32)?;
    let to = if at.is_null() { None } else { Some(address(at, address_length)?) };
    let mut memory = Memory::one(UserAddr::new(data), length)?;
    let nonblocking = is_nonblocking(&file, flags);
    let control = SendControl { follows: follows(flags), ..SendControl::default() };
    sent(socket, flags, socket.send(&mut memory, to.as_ref(), nonblocking, &control))
}

/// Whether more of what is sent follows.
fn follows(flags: u64) -> bool {
    flags as u32 & net::MSG_MORE != 0
}

/// What a call returns that has sent something: who sends a stream to where nobody takes it gets
/// SIGPIPE.
fn sent(socket: &dyn Socket, flags: u64, result: SysResult) -> SysResult {
    let is_quiet = flags as u32 & net::MSG_NOSIGNAL != 0;
    if result == Err(Errno::EPIPE) && socket.is_stream() && !is_quiet {
        signal::raise(linux::SIGPIPE);
    }
    result
}

/// recvfrom(fd, data, length, flags, address, length).
pub fn recvfrom(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    let [_, data, length, flags, at, address_length] = args;
    let socket = socket_of(&file)?;
    let mut memory = Memory::one(UserAddr::new(data), length)?;
    let received = received(socket, &mut memory, reception(&file, flags)?)?;
    let at = UserAddr::new(at);
    if !at.is_null() {
        let address_length = UserAddr::new(address_length);
        let room = user::read_u32(address_length)?;
        if (room as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        write_address(&received.from, at, room)?;
        user::write_u32(address_length, received.from.bytes().len() as u32)?;
    }
    Ok(received.length)
}

/// What is received: a message, or a report of one that was sent.
fn received(socket: &dyn Socket, memory: &mut Memory, how: Reception) -> Result<Received, Errno> {
    if how.takes_reports { socket.receive_report(memory) } else { socket.receive(memory, how) }
}

fn is_nonblocking(file: &Description, flags: u64) -> bool {
    flags as u32 & net::MSG_DONTWAIT != 0 || file.status() & linux::O_NONBLOCK != 0
}

/// How flags of recv(2) say that something is received.
fn reception(file: &Description, flags: u64) -> Result<Reception, Errno> {
    let has = |flag| flags as u32 & flag != 0;
    if has(net::MSG_OOB) {
        socket_of(file)?.check_urgent()?;
    }
    Ok(Reception {
        nonblocking: is_nonblocking(file, flags),
        peeks: has(net::MSG_PEEK),
        tells_length: has(net::MSG_TRUNC),
        waits_for_all: has(net::MSG_WAITALL),
        takes_reports: has(net::MSG_ERRQUEUE),
    })
}

/// sendmsg(fd, message, flags).
pub fn sendmsg(row: &Row, args: Args) -> SysResult {
    let [fd, at, flags, ..] = args;
    let at = UserAddr::new(at);
    match local_by_message(fd, at)? {
        Some(file) => send_message(&file, at, flags),
        None => {
            rights::pass_rights(at)?;
            remote(row, args)
        }
    }
}

/// As [`local_by`], with the address in a `struct msghdr`.
fn local_by_message(fd: u64, at: UserAddr) -> Result<Option<Arc<Description>>, Errno> {
    if let Some(file) = files::find(fd) {
        return Ok(Some(file));
    }
    match user::read_struct::<MsgHdr>(at) {
        Ok(header) if header.name != 0 => {
            local_by(fd, UserAddr::new(header.name), name_length(&header))
        }
        _ => Ok(None),
    }
}

/// Bytes of the address in a message. As under Linux, what is too long is cut off here.
fn name_length(header: &MsgHdr) -> u64 {
    u64::from(header.name_length).min(LONGEST_ADDRESS)
}

fn send_message(file: &Description, at: UserAddr, flags: u64) -> SysResult {
    let socket = socket_of(file)?;
    let header: MsgHdr = user::read_struct(at)?;
    socket.check_way(flags as u32)?;
    let control = SendControl { follows: follows(flags), ..messages::of_message(&header)? };
    let to = match (header.name, header.name_length as i32) {
        // No bytes are no address.
        (0, _) | (_, 0) => None,
        (_, ..0) => return Err(Errno::EINVAL),
        (name, _) => Some(address(UserAddr::new(name), name_length(&header))?),
    };
    let mut memory = vector(&header)?;
    let nonblocking = is_nonblocking(file, flags);
    sent(socket, flags, socket.send(&mut memory, to.as_ref(), nonblocking, &control))
}

fn vector(header: &MsgHdr) -> Result<Memory, Errno> {
    Memory::vector(UserAddr::new(header.vector), header.vector_length).map_err(
        |error| match error {
            Errno::EINVAL if header.vector_length > 1024 => Errno::EMSGSIZE,
            error => error,
        },
    )
}

/// sendmmsg(fd, messages, count, flags).
pub fn sendmmsg(row: &Row, args: Args) -> SysResult {
    let [fd, messages, count, flags, ..] = args;
    let messages = UserAddr::new(messages);
    if count == 0 || local_by_message(fd, messages)?.is_none() {
        rights::pass_all(messages, count)?;
        return remote(row, args);
    }
    let file = files::find(fd).ok_or(Errno::EBADF)?;
    each(messages, count, || false, |at| send_message(&file, at, flags))
}

/// Most messages of one call.
const MOST_MESSAGES: u64 = 1024;

/// Has `transfer` move each message until `is_over` says so behind one, and stores its length.
/// Returns how many were moved; the error if it was none.
fn each(
    messages: UserAddr,
    count: u64,
    is_over: impl Fn() -> bool,
    mut transfer: impl FnMut(UserAddr) -> SysResult,
) -> SysResult {
    let mut done = 0;
    while done < u64::from(count as u32).min(MOST_MESSAGES) {
        let at = messages.wrapping_add(done * MESSAGE);
        match transfer(at) {
            Ok(length) => user::write_u32(at.wrapping_add(MESSAGE_LENGTH), length as u32)?,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += 1;
        if is_over() {
            break;
        }
    }
    Ok(done)
}

/// recvmsg(fd, message, flags) and recvmmsg(fd, messages, count, flags, timeout): descriptors may
/// come with the data of a socket of Linux's.
pub fn receive(row: &Row, args: Args) -> SysResult {
    let Some(file) = files::find(args[0]) else { return receive_there(row, args) };
    let at = UserAddr::new(args[1]);
    if u32::from(row.number) == linux::__NR_recvmsg {
        return receive_message(&file, at, reception(&file, args[2])?);
    }
    /// Behind the first message, it does not wait.
    const WAIT_FOR_ONE: u32 = 0x10000;
    let time_at = UserAddr::new(args[4]);
    let end = match time_at.is_null() {
        true => None,
        false => Some(time::now() + timespec::read_timespec(time_at)?),
    };
    let mut how = reception(&file, args[3])?;
    // As under Linux, the time is looked at behind each message, and ends no wait.
    let is_over = || end.is_some_and(|end| time::now() >= end);
    let done = each(at, args[2], is_over, |at| {
        let result = receive_message(&file, at, how);
        how.nonblocking |= args[3] as u32 & WAIT_FOR_ONE != 0;
        result
    })?;
    if let Some(end) = end.filter(|_| done > 0) {
        timespec::write_timespec(time_at, Nanos(end.0.saturating_sub(time::now().0)))?;
    }
    Ok(done)
}

fn receive_there(row: &Row, args: Args) -> SysResult {
    let files = files::table()?;
    files.agree()?;
    let result = remote(row, args)?;
    files.doubt();
    Ok(result)
}

fn receive_message(file: &Description, at: UserAddr, how: Reception) -> SysResult {
    let socket = socket_of(file)?;
    let mut header: MsgHdr = user::read_struct(at)?;
    let mut memory = vector(&header)?;
    let Received { length, flags, from, told } = received(socket, &mut memory, how)?;
    if header.name != 0 {
        if (header.name_length as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        write_address(&from, UserAddr::new(header.name), header.name_length)?;
        header.name_length = from.bytes().len() as u32;
    }
    let mut control = Room::of(&header);
    control.tell(&told)?;
    header.control_length -= control.left;
    header.flags = flags | if control.is_cut { net::MSG_CTRUNC } else { 0 };
    // What the program gave is not written back.
    const NAME_LENGTH: u64 = core::mem::offset_of!(MsgHdr, name_length) as u64;
    const CONTROL_LENGTH: u64 = core::mem::offset_of!(MsgHdr, control_length) as u64;
    const FLAGS: u64 = core::mem::offset_of!(MsgHdr, flags) as u64;
    if header.name != 0 {
        user::write_u32(at.wrapping_add(NAME_LENGTH), header.name_length)?;
    }
    user::write_words(at.wrapping_add(CONTROL_LENGTH), [header.control_length])?;
    user::write_u32(at.wrapping_add(FLAGS), header.flags)?;
    Ok(length)
}
