#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program in the realm keeps its period of 1 ms while the network sends a flood of frames, another
# program asks for rings without end, and programs that have sockets and rings are killed. All of
# their memory comes back. Linux takes the card from the realm by force.
# kernels: 6.12
# icount: yes
# turns: short
# smp: 2
# realm: no
# devices: yes
# uses: net hostile-net listeners
# full: FLOOD=2
# timeout: 900
set -u
attack_by_frames
