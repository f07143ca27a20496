// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path: request slots, doorbells and page drops between the realms.
#![cfg_attr(not(test), no_std)]
