#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From a program that sends a frame to the instruction behind another one's recv, and there and back
# again: how many instructions that takes under Linux, and in the realm, which has both cards.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# devices: yes
# uses: net net-latency
# timeout: 900
set -u
frames_take
