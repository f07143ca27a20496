#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's linuxptp synchronizes over an interface of the realm as over one of Linux: ptp4l as a
# slave at near, of a master under Linux at far, by stamps of the kernel, over Ethernet and UDP.
# Both have the same clock, whose frequency the slave hardly changes, so the offset that it finds is
# what the stamps are wrong by.
# tier: full
# kernels: 6.12
# realm: no
# devices: yes
# packages: linuxptp
# uses: net peer
# icount: yes
# timeout: 400
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
cat >conf <<-'END'
	[global]
	time_stamping software
	first_step_threshold 0
	step_threshold 0
	max_frequency 1000
	pi_proportional_const 0.1
	pi_integral_const 0.1
	sanity_freq_limit 0
	logAnnounceInterval -2
	logSyncInterval -3
	logMinDelayReqInterval -3
	announceReceiptTimeout 4
	tx_timestamp_timeout 2000
	summary_interval -1
	kernel_leap 0
	verbose 1
	use_syslog 0
END

# slave NAME COMMAND...: the slave is run by COMMAND until it has told offsets, by each transport.
slave() {
	local name=$1 transport master slave offset seen
	shift
	for transport in -2 -4; do
		ip netns exec peer timeout 100 ptp4l $transport -f conf -i far --priority1 1 \
			--uds_address /tmp/master >"master$transport" 2>&1 &
		master=$!
		timeout 100 "$@" ptp4l $transport -f conf -i near -s \
			--uds_address /tmp/slave >"$name$transport" 2>&1 &
		slave=$!
		await "sed '1,/ to SLAVE /d' '$name$transport' | grep -c ' rms ' | grep -q '[4-9]'" 400 ||
			fail "$name $transport: no offset"
		kill $master $slave
		wait $master $slave
		grep -q 'UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED' "$name$transport" ||
			fail "$name $transport: it is no slave"
		grep -q -e 'without timestamp' -e 'timed out' -e failed "$name$transport" "master$transport" &&
			fail "$name $transport: a stamp is missing"
		# The middle of what it has told, in nanoseconds.
		seen=$(sed -n 's/^ptp4l.* rms *\([0-9]*\) .*/\1/p' "$name$transport" | sort -n)
		offset=$(sed -n "$((($(wc -l <<<"$seen") + 1) / 2))p" <<<"$seen")
		echo "$name $transport: offset ${offset:-none} ns"
		[ "${offset:-999999999}" -lt 100000 ] || fail "$name $transport: offset $offset ns"
		[ $failed = 0 ] || { tail -n 20 "$name$transport" "master$transport"; return; }
	done
}

wire && peer || exit 1
slave linux
crtos up --cpus 3 --memory 256M --device near || exit 1
slave realm chrt -f 20 crtos run --
crtos down --force || fail down
exit $failed
