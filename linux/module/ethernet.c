// SPDX-License-Identifier: GPL-2.0-only
/*
 * Linux's end of the virtual Ethernet to the realm: an interface whose frames go through two rings
 * in the channel. It is there as long as the realm's cell, and has a carrier while the kernel there
 * says that its end is up. The realm is not believed: see ring.h. What it sends is copied once, and
 * looked at afterwards.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rcupdate.h>
#include <linux/rtnetlink.h>
#include <linux/uaccess.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"
#include "ring.h"

/* What is counted beside what Linux counts of every interface; the order of the names below. */
enum {
	RUNG_REALM,	/* doorbells of the realm */
	RUNG_BY_REALM,	/* doorbells that had something to do here */
	BAD_FRAMES,	/* of the realm, or an index that is out of its ring */
	FULL_RING,	/* times that Linux had to wait for room */
	COUNTS
};

static const char names[COUNTS][ETH_GSTRING_LEN] = {
	"rung_realm", "rung_by_realm", "bad_frames", "full_ring",
};

/* The interface: what its net_device has besides. */
struct crtos_ethernet_end {
	struct net_device *dev;
	struct crtos_realm *realm;
	struct crtos_ethernet *shared;
	struct napi_struct napi;
	struct work_struct link;	/* looks whether there is a carrier */
	u64 written;			/* places since the start; under the queue's lock */
	u64 taken;			/* likewise; by NAPI */
	atomic_long_t counts[COUNTS];
};

static void count(struct crtos_ethernet_end *end, int which)
{
	atomic_long_inc(&end->counts[which]);
}

static void ring_realm(struct crtos_ethernet_end *end)
{
	/* Stored by the card of the kernel's; any number is one of a CPU, perhaps of none. */
	u64 cpu = READ_ONCE(end->shared->to_realm.cpu) % CRTOS_MAX_CELL_CPUS;

	if (!READ_ONCE(end->realm->alive))
		return;
	count(end, RUNG_REALM);
	crtos_hypercall(CRTOS_HC_DOORBELL, end->realm->cell->number, cpu, 0, 0);
}

/* Says where the kernel rings for the answer: where who sends runs. A hint. */
static void answer_here(struct crtos_ethernet_ring *ring)
{
	u64 here = 1 + raw_smp_processor_id();

	if (READ_ONCE(ring->cpu) != here)
		WRITE_ONCE(ring->cpu, here);
}

/* Stops the queue unless there is room for a frame of that length; says whether it has done so. */
static bool stop_if_full(struct crtos_ethernet_end *end, unsigned int length)
{
	struct crtos_ethernet_ring *ring = &end->shared->to_realm;

	if (likely(crtos_ring_has_room(ring, end->written, length)))
		return false;
	netif_stop_queue(end->dev);
	count(end, FULL_RING);
	crtos_ring_want_room(ring);
	if (!crtos_ring_has_room(ring, end->written, length))
		return true;
	netif_start_queue(end->dev);
	return false;
}

/* Bytes of the longest frame that goes by the interface as it is. */
static unsigned int longest(struct net_device *dev)
{
	return READ_ONCE(dev->mtu) + VLAN_ETH_HLEN;
}

static netdev_tx_t transmit(struct sk_buff *skb, struct net_device *dev)
{
	struct crtos_ethernet_end *end = netdev_priv(dev);
	struct crtos_ethernet_ring *ring = &end->shared->to_realm;
	unsigned int length = skb->len;

	if (unlikely(length < ETH_HLEN || length > CRTOS_ETHERNET_LONGEST)) {
		dev_core_stats_tx_dropped_inc(dev);
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	/* The MTU may have become larger meanwhile. */
	if (unlikely(stop_if_full(end, length)))
		return NETDEV_TX_BUSY;
	skb_copy_and_csum_dev(skb, crtos_ring_begin(ring, &end->written, length));
	skb_tx_timestamp(skb);
	dev_sw_netstats_tx_add(dev, 1, length);
	answer_here(&end->shared->to_linux);
	crtos_ring_send(ring, &end->written, length);
	stop_if_full(end, longest(dev));
	if ((!netdev_xmit_more() || netif_queue_stopped(dev)) && crtos_ring_is_awaited(ring))
		ring_realm(end);
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

/* Has frames sent again, if there is room. */
static void go_on_sending(struct crtos_ethernet_end *end)
{
	struct netdev_queue *queue = netdev_get_tx_queue(end->dev, 0);

	if (!netif_tx_queue_stopped(queue))
		return;
	__netif_tx_lock_bh(queue);
	if (crtos_ring_has_room(&end->shared->to_realm, end->written, longest(end->dev))) {
		WRITE_ONCE(end->shared->to_realm.wants_room, 0);
		netif_tx_wake_queue(queue);
	}
	__netif_tx_unlock_bh(queue);
}

static void receive(struct crtos_ethernet_end *end, unsigned int length)
{
	u8 *place = crtos_ring_place(&end->shared->to_linux, end->taken);
	struct sk_buff *skb = napi_alloc_skb(&end->napi, length);

	if (!skb) {
		dev_core_stats_rx_dropped_inc(end->dev);
		return;
	}
	skb_put_data(skb, place, length);
	skb->protocol = eth_type_trans(skb, end->dev);
	dev_sw_netstats_rx_add(end->dev, length);
	napi_gro_receive(&end->napi, skb);
}

/* Takes the next frame of the realm; false if there is none. */
static bool take(struct crtos_ethernet_end *end)
{
	struct crtos_ethernet_ring *ring = &end->shared->to_linux;
	u64 taken = end->taken;
	u64 waiting = crtos_ring_waiting(ring, taken);
	unsigned int length;

	if (!waiting)
		return false;
	length = crtos_ring_next(ring, &taken, waiting);
	if (likely(length >= ETH_HLEN)) {
		end->taken = taken;
		receive(end, length);
		end->taken += crtos_ring_places(length);
	} else {
		count(end, BAD_FRAMES);
		end->taken += waiting;
	}
	crtos_ring_take(ring, end->taken);
	return true;
}

static int poll(struct napi_struct *napi, int budget)
{
	struct crtos_ethernet_end *end = container_of(napi, struct crtos_ethernet_end, napi);
	struct crtos_ethernet_ring *ring = &end->shared->to_linux;
	int done = 0;

	WRITE_ONCE(ring->wants_frames, 0);
	go_on_sending(end);
	while (done < budget && take(end))
		done++;
	if (done < budget && napi_complete_done(napi, done)) {
		crtos_ring_want_frames(ring);
		if (crtos_ring_waiting(ring, end->taken))
			napi_schedule(napi);
	}
	return done;
}

/* Frames that were sent while nobody was here are lost. */
static void forget_frames(struct crtos_ethernet_end *end)
{
	struct crtos_ethernet_ring *ring = &end->shared->to_linux;

	end->taken = READ_ONCE(ring->written);
	crtos_ring_take(ring, end->taken);
}

static int open(struct net_device *dev)
{
	struct crtos_ethernet_end *end = netdev_priv(dev);

	forget_frames(end);
	napi_enable(&end->napi);
	netif_start_queue(dev);
	WRITE_ONCE(end->shared->linux_up, 1);
	crtos_ring_want_frames(&end->shared->to_linux);
	local_bh_disable();
	napi_schedule(&end->napi);
	local_bh_enable();
	return 0;
}

static int stop(struct net_device *dev)
{
	struct crtos_ethernet_end *end = netdev_priv(dev);

	WRITE_ONCE(end->shared->linux_up, 0);
	WRITE_ONCE(end->shared->to_linux.wants_frames, 0);
	netif_tx_disable(dev);
	napi_disable(&end->napi);
	forget_frames(end);
	return 0;
}

/* The realm's end has the same: the kernel reads it for each frame. */
static int change_mtu(struct net_device *dev, int mtu)
{
	struct crtos_ethernet_end *end = netdev_priv(dev);

	WRITE_ONCE(dev->mtu, mtu);
	WRITE_ONCE(end->shared->mtu, mtu);
	return 0;
}

static int init(struct net_device *dev)
{
	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	return dev->tstats ? 0 : -ENOMEM;
}

static void uninit(struct net_device *dev)
{
	free_percpu(dev->tstats);
}

static const struct net_device_ops operations = {
	.ndo_init = init,
	.ndo_uninit = uninit,
	.ndo_open = open,
	.ndo_stop = stop,
	.ndo_start_xmit = transmit,
	.ndo_change_mtu = change_mtu,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "crtos", sizeof(info->driver));
	strscpy(info->version, THIS_MODULE->version, sizeof(info->version));
	strscpy(info->bus_info, "channel", sizeof(info->bus_info));
}

static int get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? COUNTS : -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, names, sizeof(names));
}

static void get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct crtos_ethernet_end *end = netdev_priv(dev);
	int i;

	for (i = 0; i < COUNTS; i++)
		data[i] = atomic_long_read(&end->counts[i]);
}

static const struct ethtool_ops tool_operations = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_ts_info = ethtool_op_get_ts_info,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_ethtool_stats,
};

/* Is the realm's end up? Any context. */
static bool is_linked(struct crtos_ethernet_end *end)
{
	struct crtos_realm *realm = end->realm;

	return READ_ONCE(realm->alive) &&
	       READ_ONCE(realm->channel->kernel_state) != CRTOS_KERNEL_DEAD &&
	       READ_ONCE(end->shared->realm_up);
}

static void link_work(struct work_struct *work)
{
	struct crtos_ethernet_end *end = container_of(work, struct crtos_ethernet_end, link);

	if (is_linked(end))
		netif_carrier_on(end->dev);
	else
		netif_carrier_off(end->dev);
}

/**
 * crtos_ethernet_doorbell() - look at what the kernel may have rung for
 * @realm: the realm
 *
 * Context: Any, hard interrupts on PREEMPT_RT included; under rcu_read_lock().
 */
void crtos_ethernet_doorbell(struct crtos_realm *realm)
{
	struct crtos_ethernet_end *end = rcu_dereference(realm->ethernet);

	if (!end)
		return;
	if (is_linked(end) != netif_carrier_ok(end->dev))
		queue_work(crtos.work, &end->link);
	/* By NAPI, which looks for itself: READ_ONCE() of what it changes is a hint. */
	if (crtos_ring_waiting(&end->shared->to_linux, READ_ONCE(end->taken)) ||
	    netif_queue_stopped(end->dev)) {
		count(end, RUNG_BY_REALM);
		napi_schedule(&end->napi);
	}
}

/**
 * crtos_ethernet_start() - begin anew, before the realm's cell starts
 * @realm: the realm, whose channel is all zero
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_ethernet_start(struct crtos_realm *realm)
{
	struct crtos_ethernet_end *end = rcu_dereference_protected(realm->ethernet,
								   lockdep_is_held(&crtos.lock));

	if (!end)
		return;
	rtnl_lock();
	if (netif_running(end->dev))
		stop(end->dev);
	end->written = 0;
	end->taken = 0;
	WRITE_ONCE(end->shared->mtu, end->dev->mtu);
	if (netif_running(end->dev))
		open(end->dev);
	rtnl_unlock();
}

static struct crtos_ethernet_end *make(struct crtos_realm *realm, const char *name)
{
	struct crtos_ethernet_end *end;
	struct net_device *dev = alloc_etherdev(sizeof(*end));

	if (!dev)
		return NULL;
	end = netdev_priv(dev);
	end->dev = dev;
	end->realm = realm;
	end->shared = &realm->channel->ethernet;
	INIT_WORK(&end->link, link_work);
	strscpy(dev->name, name, sizeof(dev->name));
	dev->name_assign_type = NET_NAME_PREDICTABLE;
	dev->max_mtu = CRTOS_ETHERNET_MOST_MTU;
	dev->hw_features = NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HW_CSUM | NETIF_F_HIGHDMA;
	dev->features = dev->hw_features;
	dev->vlan_features = dev->hw_features;
	dev->netdev_ops = &operations;
	dev->ethtool_ops = &tool_operations;
	dev_net_set(dev, current->nsproxy->net_ns);
	eth_hw_addr_random(dev);
	netif_carrier_off(dev);
	netif_napi_add(dev, &end->napi, poll);
	return end;
}

/**
 * crtos_ethernet_add() - CRTOS_IOC_ETHERNET_ADD: make Linux's end of the virtual Ethernet
 * @file: where a failure is explained
 * @user: for which cell, its name, and where its number goes
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then it is not there.
 */
int crtos_ethernet_add(struct crtos_file *file, struct crtos_cell_ethernet __user *user)
{
	struct crtos_cell_ethernet argument;
	struct crtos_ethernet_end *end;
	struct crtos_realm *realm;
	struct crtos_cell *cell;
	int error;

	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	argument.name[sizeof(argument.name) - 1] = '\0';
	cell = crtos_cell_find(file, argument.cell);
	if (!cell)
		return -ENOENT;
	realm = crtos_realm_kept();
	if (!cell->realm || !realm || !dev_valid_name(argument.name))
		return crtos_refuse(file, -EINVAL,
				    "[not-the-realm] that is no name, or cell '%s' is not the real-time realm",
				    cell->name);
	if (rcu_access_pointer(realm->ethernet) || READ_ONCE(realm->alive))
		return crtos_refuse(file, -EBUSY,
				    "[cell-state] the realm runs, or has a virtual Ethernet already");
	end = make(realm, argument.name);
	if (!end)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	error = register_netdev(end->dev);
	if (error) {
		crtos_refuse(file, error,
			     "[interface-name] Linux cannot have an interface '%s' (%pe): perhaps it has one already",
			     argument.name, ERR_PTR(error));
		free_netdev(end->dev);
		return error;
	}
	rcu_assign_pointer(realm->ethernet, end);
	argument.index = end->dev->ifindex;
	eth_random_addr(argument.address);
	if (!copy_to_user(user, &argument, sizeof(argument)))
		return 0;
	crtos_ethernet_remove(realm);
	return -EFAULT;
}

/**
 * crtos_ethernet_changed() - the realm has ended, or may have
 * @realm: the realm
 *
 * Context: Under rcu_read_lock() or crtos.lock.
 */
void crtos_ethernet_changed(struct crtos_realm *realm)
{
	struct crtos_ethernet_end *end = rcu_dereference_check(realm->ethernet,
							       lockdep_is_held(&crtos.lock));

	if (end)
		queue_work(crtos.work, &end->link);
}

/**
 * crtos_ethernet_remove() - undo crtos_ethernet_add()
 * @realm: the realm, with such an interface or without
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_ethernet_remove(struct crtos_realm *realm)
{
	struct crtos_ethernet_end *end = rcu_replace_pointer(realm->ethernet, NULL,
							     lockdep_is_held(&crtos.lock));

	if (!end)
		return;
	/* Nobody schedules NAPI, nor looks for a carrier, any more. */
	synchronize_rcu();
	cancel_work_sync(&end->link);
	unregister_netdev(end->dev);
	free_netdev(end->dev);
}
