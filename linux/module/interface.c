// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network interfaces whose cards the realm has, as Linux shows them: a stand-in with the name, the
 * number and the address of the interface. It receives nothing, and what is sent by it is dropped
 * and counted. No route of Linux leads by it, so that nothing that Linux sends ends there
 * unnoticed, and Linux does not answer for its addresses.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <net/fib_notifier.h>
#include <net/ip_fib.h>
#include <net/nexthop.h>

#include "compat.h"
#include "crtos.h"

/* A stand-in: what its net_device has besides. */
struct crtos_interface {
	struct net_device *dev;
	struct notifier_block routes;	/* hears of routes that are to come */
	char name[IFNAMSIZ];
	u32 speed;
	u8 duplex;
};

static netdev_tx_t drop(struct sk_buff *skb, struct net_device *dev)
{
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

/* Its address and its MTU do not change: they are the realm's. */
static const struct net_device_ops operations = {
	.ndo_start_xmit = drop,
};

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "crtos", sizeof(info->driver));
	strscpy(info->version, THIS_MODULE->version, sizeof(info->version));
	strscpy(info->bus_info, dev_name(dev->dev.parent), sizeof(info->bus_info));
}

static int get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *settings)
{
	struct crtos_interface *interface = netdev_priv(dev);

	settings->base.speed = interface->speed;
	settings->base.duplex = interface->duplex;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const char statistic[ETH_GSTRING_LEN] = "dropped_of_linux";

static int get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? 1 : -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, statistic, sizeof(statistic));
}

static void get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct rtnl_link_stats64 all;

	data[0] = dev_get_stats(dev, &all)->tx_dropped;
}

static const struct ethtool_ops tool_operations = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link_ksettings,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_ethtool_stats,
};

static bool is_stand_in(const struct net_device *dev)
{
	return dev->netdev_ops == &operations;
}

/* It keeps its name, and is no part of another interface. */
static int changes(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);
	const struct netdev_notifier_changeupper_info *upper = data;
	const struct crtos_interface *interface;

	if (!is_stand_in(dev))
		return NOTIFY_DONE;
	interface = netdev_priv(dev);
	if ((event == NETDEV_CHANGENAME && strcmp(dev->name, interface->name)) ||
	    (event == NETDEV_PRECHANGEUPPER && upper->linking))
		return notifier_from_errno(-EBUSY);
	return NOTIFY_DONE;
}

static struct notifier_block changes_block = {
	.notifier_call = changes,
};

/**
 * crtos_interface_init() - hear of what happens to interfaces
 *
 * Context: Module initialisation.
 * Return: 0 or a negative error.
 */
int crtos_interface_init(void)
{
	return register_netdevice_notifier(&changes_block);
}

/**
 * crtos_interface_exit() - undo crtos_interface_init()
 */
void crtos_interface_exit(void)
{
	unregister_netdevice_notifier(&changes_block);
}

/*
 * No route leads by it: none that Linux adds for an address, also to itself, and none that somebody
 * else does. Linux says so before it adds one that counts.
 */
static int routes(struct notifier_block *block, unsigned long event, void *data)
{
	const struct crtos_interface *interface =
		container_of(block, struct crtos_interface, routes);
	const struct fib_notifier_info *info = data;
	const struct fib_entry_notifier_info *entry = data;
	int i;

	if (event != FIB_EVENT_ENTRY_REPLACE && event != FIB_EVENT_ENTRY_APPEND &&
	    event != FIB_EVENT_ENTRY_ADD)
		return NOTIFY_DONE;
	/* IPv6 is off. */
	if (info->family != AF_INET)
		return NOTIFY_DONE;
	for (i = 0; i < fib_info_num_path(entry->fi); i++)
		if (fib_info_nhc(entry->fi, i)->nhc_dev == interface->dev)
			return notifier_from_errno(-EBUSY);
	return NOTIFY_DONE;
}

/* Under rtnl_lock. */
static int add(struct crtos_interface *interface, u32 flags)
{
	struct net_device *dev = interface->dev;
	struct inet6_dev *ipv6;
	int error;

	error = register_netdevice(dev);
	if (error)
		return error;
	/*
	 * Linux takes what comes from its own addresses for forged, by a list of these, unless it
	 * knows that routes say otherwise, as they do here: then it looks for the route.
	 */
	WRITE_ONCE(init_net.ipv4.fib_has_custom_local_routes, true);
	/* The realm has none. */
	ipv6 = __in6_dev_get(dev);
	if (ipv6)
		WRITE_ONCE(ipv6->cnf.disable_ipv6, 1);
	error = dev_open(dev, NULL);
	if (error)
		unregister_netdevice(dev);
	else if (flags & CRTOS_INTERFACE_CARRIER)
		netif_carrier_on(dev);
	return error;
}

static int check(struct crtos_file *file, const struct crtos_cell_interface *argument)
{
	if (!net_eq(current->nsproxy->net_ns, &init_net))
		return crtos_refuse(file, -EOPNOTSUPP,
				    "[device-unfit] interfaces of network namespaces are not shown");
	if (argument->flags & ~(CRTOS_INTERFACE_CARRIER | CRTOS_INTERFACE_FULL_DUPLEX) ||
	    !dev_valid_name(argument->name) || !argument->index || argument->index > INT_MAX ||
	    argument->mtu < ETH_MIN_MTU || argument->mtu > ETH_MAX_MTU ||
	    !is_valid_ether_addr(argument->address))
		return crtos_refuse(file, -EINVAL, "[bad-call] that is no description of an interface");
	return 0;
}

/**
 * crtos_interface_register() - have Linux show an interface
 * @file: where a failure is explained
 * @card: its card
 * @argument: what the interface was; its names end with a zero
 * @registered: set to it
 *
 * Context: May sleep; without rtnl_lock.
 * Return: 0 or a negative error; then it is not there.
 */
int crtos_interface_register(struct crtos_file *file, struct device *card,
			     const struct crtos_cell_interface *argument,
			     struct crtos_interface **registered)
{
	struct crtos_interface *interface;
	struct net_device *dev;
	int error = check(file, argument);

	if (error)
		return error;
	dev = alloc_etherdev(sizeof(*interface));
	if (!dev)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	interface = netdev_priv(dev);
	interface->dev = dev;
	interface->routes.notifier_call = routes;
	strscpy(interface->name, argument->name, sizeof(interface->name));
	interface->speed = argument->speed;
	interface->duplex = argument->flags & CRTOS_INTERFACE_FULL_DUPLEX ? DUPLEX_FULL :
									    DUPLEX_UNKNOWN;
	strscpy(dev->name, argument->name, sizeof(dev->name));
	dev->name_assign_type = NET_NAME_USER;
	dev->ifindex = argument->index;
	dev->mtu = argument->mtu;
	dev->min_mtu = argument->mtu;
	dev->max_mtu = argument->mtu;
	dev->tx_queue_len = argument->queue_length;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->netdev_ops = &operations;
	dev->ethtool_ops = &tool_operations;
	eth_hw_addr_set(dev, argument->address);
	crtos_keep_namespace(dev);
	netif_carrier_off(dev);
	SET_NETDEV_DEV(dev, card);
	/* Before there are addresses. It is told of the routes that there are, too. */
	error = register_fib_notifier(&init_net, &interface->routes, NULL, NULL);
	if (error) {
		crtos_refuse(file, error, "[device-broken] routes change too often: try again");
		goto out_free;
	}
	rtnl_lock();
	error = add(interface, argument->flags);
	rtnl_unlock();
	if (!error) {
		*registered = interface;
		return 0;
	}
	crtos_refuse(file, error,
		     "[interface-name] Linux cannot show '%s' meanwhile: perhaps another interface has its name or its number %u (ip link)",
		     argument->name, argument->index);
	unregister_fib_notifier(&init_net, &interface->routes);
out_free:
	free_netdev(dev);
	return error;
}

/**
 * crtos_interface_unregister() - undo crtos_interface_register()
 * @interface: what that has made
 *
 * Context: May sleep; without rtnl_lock.
 */
void crtos_interface_unregister(struct crtos_interface *interface)
{
	unregister_netdev(interface->dev);
	unregister_fib_notifier(&init_net, &interface->routes);
	free_netdev(interface->dev);
}
