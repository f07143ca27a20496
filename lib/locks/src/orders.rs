// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-ups that somebody else is to carry out: a short list, in which those at one word are one.

use crtos_abi::UserAddr;

/// A wake-up at a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The word.
    pub word: UserAddr,
    /// Most waiters to wake, at least 1.
    pub count: u32,
    /// What waiters wait for who are woken: one of these bits.
    pub bits: u32,
    /// Among which wake-ups it is counted while it is under way.
    pub crowd: u8,
}

/// There is no room for an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Up to `N` orders that differ in their words or bits, the oldest first.
#[derive(Debug)]
pub struct Orders<const N: usize> {
    orders: [Order; N],
    first: usize,
    count: usize,
}

impl<const N: usize> Orders<N> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        let none = Order { word: UserAddr::NULL, count: 0, bits: 0, crowd: 0 };
        Self { orders: [none; N], first: 0, count: 0 }
    }

    /// Adds an order, or has the one at its word wake more. Up to `N` steps.
    pub fn add(&mut self, order: Order) -> Result<(), Full> {
        for index in 0..self.count {
            let other = &mut self.orders[(self.first + index) % N];
            if other.word == order.word && other.bits == order.bits {
                other.count = other.count.saturating_add(order.count);
                return Ok(());
            }
        }
        if self.count == N {
            return Err(Full);
        }
        self.orders[(self.first + self.count) % N] = order;
        self.count += 1;
        Ok(())
    }

    /// Removes the oldest order.
    pub fn take(&mut self) -> Option<Order> {
        if self.count == 0 {
            return None;
        }
        let order = self.orders[self.first];
        self.first = (self.first + 1) % N;
        self.count -= 1;
        Some(order)
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<const N: usize> Default for Orders<N> {
    fn default() -> Self {
        Self::new()
    }
}
