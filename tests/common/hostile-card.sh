# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Root in Linux works on a network card that the realm has and uses: by configuration space, power
# states, resets and drivers. The realm goes on. However the card comes back to Linux then, or the
# machine loses it, it does nothing of what the realm had it do, as soon as it may master the bus
# again; and its configuration space is as it was.
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a crtos e1000e igb virtio_net af_packet || exit 1
await '[ "$(cards | wc -l)" = 2 ]' || exit 1
{ read -r interface; read -r peer; } < <(cards)
card=$(basename "$(card_of "$interface")")
place=/sys/bus/pci/devices/$card
name_of_card() { basename -a "$place"/{,virtio*/}net/* | grep -vF '*'; }
driver() { basename "$(readlink "$place/driver" || echo none)"; }
own_driver=$(driver)
space() { od -An -tx4 -v "$place/config"; }
ip netns add end
ip link set "$peer" netns end
ip -n end address add 10.0.0.2/24 dev "$peer"
ip -n end link set "$peer" up
set_up() {
	await '[ -n "$(name_of_card)" ]' || { fail "$1: Linux has no card"; return 1; }
	ip address replace 10.0.0.1/24 dev "$(name_of_card)" && ip link set "$(name_of_card)" up &&
		await 'busybox ping -q -c 1 -W 1 10.0.0.2 >/dev/null' 100 || fail "$1: no packets in Linux"
}
realm_uses() { timeout 60 crtos run -- arping -q -c 1 -I "$interface" 10.0.0.2 || fail "$1: no frames"; }
# frames: some come to the card, whoever has it, and whatever their address.
frames() {
	ip netns exec end timeout 10 arping -q -c 3 -W 0.1 -I "$peer" 10.0.0.77
	ip netns exec end timeout 10 busybox ping -q -c 2 -i 0.2 -W 1 10.0.0.1
} >/dev/null 2>&1
set_up 'at first' || exit 1
interface=$(name_of_card)

# As Linux's driver leaves it, that does not get it back for now.
echo none >"$place/driver_override"
echo "$card" >"$place/driver/unbind"
before=$(space)
echo >"$place/driver_override"
echo "$card" >/sys/bus/pci/drivers_probe
set_up before
dmesg --clear

# Nothing of that reaches it as long as the realm has it.
crtos up --cpus 3 --memory 192M --device "$interface" || exit 1
realm_uses 'at first'
own=$(space)
{
	for word in COMMAND=0 BASE_ADDRESS_0=0 BASE_ADDRESS_2=1 BASE_ADDRESS_4=0 INTERRUPT_LINE=0 \
		CAP_PM+4.b=3 CAP_MSIX+2.w=0 CAP_EXP+8.w=8000 CAP_EXP+10.w=10; do
		setpci -s "$card" $word
	done
	echo auto >"$place/power/control"
	echo 1 >"$place/reset"
	echo 0 >"$place/enable"
	echo "$card" >"$place/driver/unbind"
	echo "$own_driver" >"$place/driver_override"
	echo "$card" >"/sys/bus/pci/drivers/$own_driver/bind"
	echo "$card" >/sys/bus/pci/drivers_probe
	echo >"$place/driver_override"
	sleep 1
	echo on >"$place/power/control"
} 2>/dev/null
[ "$(driver)" = crtos ] || fail "$(driver) has it"
[ "$(space)" = "$own" ] || { fail 'its configuration space'; diff <(echo "$own") <(space); }
realm_uses 'after all that'

# gives_back HOW: the realm's card is Linux's again, or the machine's that finds it anew.
gives_back() {
	case $1 in
	remove) crtos device remove "$card" ;;
	down) crtos down ;;
	force) crtos down --force ;;
	# Its driver has it at once, when some frames wait for it.
	lost) echo 1 >"$place/remove"; frames; echo 1 >/sys/bus/pci/rescan; await '[ -n "$(name_of_card)" ]' ;;
	esac || fail "$1: status $?"
}
ways='remove lost'
[ -z "${ALL:-}" ] || ways='remove down force lost'
for how in $ways; do
	[ -d /sys/class/net/"$interface" ] && [ "$(driver)" = crtos ] ||
		crtos up --cpus 3 --memory 192M --device "$interface" || { fail "$how: up"; break; }
	realm_uses "$how"
	crtos run -- arping -q -I "$interface" 10.0.0.77 >/dev/null &
	await 'crtos ps | grep -q arping'
	if [ $how = remove ] || [ $how = down ]; then
		kill $!; wait $!
		await '! crtos ps | grep -q arping'
	fi 2>/dev/null
	echo none >"$place/driver_override"
	gives_back $how
	wait
	if [ $how != lost ]; then
		[ "$(driver)" = none ] || fail "$how: $(driver) has it"
		[ "$(space)" = "$before" ] ||
			{ fail "$how: configuration space"; diff <(echo "$before") <(space); }
		setpci -s "$card" COMMAND=6:6
		frames
		setpci -s "$card" COMMAND=0:4
	fi
	complaints | grep . && fail "$how: dmesg"
	dmesg --clear
	crtos down >/dev/null 2>&1
	echo >"$place/driver_override"
	echo "$card" >/sys/bus/pci/drivers_probe
	set_up "$how" || break
	interface=$(name_of_card)
done

# A locked realm keeps it, even if Linux loses it. With the end of the realm it does nothing more,
# whether Linux has found it again before, or does so now.
more() { local before; before=$(wc -l <answers); await '[ "$(wc -l <answers)" -gt $((before + 2)) ]' 100; }
for how in found lost; do
	crtos up --cpus 3 --memory 192M --device "$interface" --locked || fail "up, locked, $how"
	crtos run -- arping -W 0.2 -I "$interface" 10.0.0.2 >answers & program=$!
	more || fail "locked, $how: no frames"
	echo 1 >"$place/remove"
	more || fail "locked, $how: no frames when it is lost"
	if [ $how = found ]; then
		# Its driver, which finds no registers, says so.
		echo 1 >/sys/bus/pci/rescan
		more || fail 'locked: no frames when it is found'
	fi
	crtos run -- sh -c "kill -INT $program" || fail kill
	wait
	crtos down || fail "down, locked, $how"
	# Whether Linux knows it or not.
	setpci -A intel-conf1 -s "$card" COMMAND=6:6
	frames
	setpci -A intel-conf1 -s "$card" COMMAND=0:4
	# What Linux has found meanwhile has no memory.
	[ ! -e "$place" ] || echo 1 >"$place/remove"
	echo 1 >/sys/bus/pci/rescan
	set_up "after the locked realm, $how"
	interface=$(name_of_card)
done
ip link set "$(name_of_card)" down
ip netns delete end
crtos log | tail -n 3
complaints | grep -vE "probe (of $card|with driver $own_driver) failed with error" | grep . && fail dmesg
exit $failed
