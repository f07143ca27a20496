// SPDX-License-Identifier: MIT OR Apache-2.0
//! Families of sockets that the realm has.
//!
//! What a socket is, and how it comes here, is in [`crate::files::socket`]. A family is a folder
//! here; what it talks to is a driver of [`crate::devices`].
//!
//! | module | concept |
//! |---|---|
//! | [`common`] | options that sockets of all families have (SOL_SOCKET) |
//! | [`error_queue`] | what is received with MSG_ERRQUEUE |
//! | [`ethtool`] | what `ethtool` asks of a driver |
//! | [`filter`] | filters of what comes (SO_ATTACH_FILTER) |
//! | [`arrivals`] | when messages come |
//! | [`can`] | CAN |
//! | [`ifreq`] | what an ioctl asks of a network interface |
//! | [`inet`] | UDP and TCP |
//! | [`net`] | network interfaces |
//! | [`packet`] | frames of these as they are |
//! | [`room`] | the room for what waits in a socket |
//! | [`stamps`] | time stamps of what is received and sent |

pub mod arrivals;
pub mod can;
pub mod common;
pub mod error_queue;
mod ethtool;
pub mod filter;
mod ifreq;
pub mod inet;
pub mod net;
pub mod packet;
mod room;
pub mod stamps;
