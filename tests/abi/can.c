// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Sockets of CAN (CAN_RAW, CAN_BCM) on can0, whose bus has can1 at its other end: frames, filters,
 * loopback, options, waiting, jobs. In the realm can0 is one of the realm's interfaces, and can1
 * Linux's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/can.h>
#include <linux/can/bcm.h>
#include <linux/can/error.h>
#include <linux/can/raw.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "driven.h"
#include "children.h"
#include "moments.h"
#include "options.h"
#include "waiting.h"

#define NEAR "can0"
#define FAR "can1"
/* Milliseconds within which a frame arrives, however busy the host is. */
#define PATIENCE 20000
/* Milliseconds after which one does not come any more. */
#define NEVER 200

static struct sockaddr_can address(const char *name)
{
	return (struct sockaddr_can){
		.can_family = AF_CAN,
		.can_ifindex = name ? (int)if_nametoindex(name) : 0,
	};
}

static int raw(void)
{
	int fd = socket(AF_CAN, SOCK_RAW | SOCK_CLOEXEC, CAN_RAW);

	CHECK(fd >= 0);
	return fd;
}

/* A socket that is bound to an interface. */
static int bound(const char *name)
{
	struct sockaddr_can to = address(name);
	int fd = raw();

	CHECK(!name || to.can_ifindex > 0);
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

static struct can_frame frame(canid_t id, const char *data)
{
	struct can_frame made = { .can_id = id, .can_dlc = strlen(data) };

	memcpy(made.data, data, made.can_dlc);
	return made;
}

static void put(int fd, canid_t id, const char *data)
{
	struct can_frame made = frame(id, data);

	CHECK(write(fd, &made, sizeof(made)) == sizeof(made));
}

/*
 * Whether the next frame that came over the bus is that one. What another socket of the interface
 * has sent is heard late: also by one that is bound after it was sent.
 */
static int gets(int fd, canid_t id, const char *data)
{
	struct can_frame got, wanted = frame(id, data);
	struct iovec vector = { &got, sizeof(got) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	do {
		if (!(ready(fd, POLLIN, PATIENCE) & POLLIN) ||
		    recvmsg(fd, &message, 0) != sizeof(got))
			return 0;
	} while (message.msg_flags & MSG_DONTROUTE);
	return got.can_id == wanted.can_id && got.can_dlc == wanted.can_dlc &&
	       memcmp(got.data, wanted.data, got.can_dlc) == 0;
}

static int gets_nothing(int fd)
{
	return !ready(fd, POLLIN, NEVER);
}

CASE(an_interface_is_found_by_its_name)
{
	struct ifreq request = { 0 };
	unsigned int index = if_nametoindex(NEAR);
	int fd = raw();

	CHECK(index > 0);
	CHECK(if_nametoindex("can7") == 0);
	strcpy(request.ifr_name, NEAR);
	CHECK(ioctl(fd, SIOCGIFINDEX, &request) == 0 && request.ifr_ifindex == (int)index);
	CHECK(ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu == CAN_MTU);
	CHECK(ioctl(fd, SIOCGIFMETRIC, &request) == 0 && request.ifr_metric == 0);
	CHECK(ioctl(fd, SIOCGIFFLAGS, &request) == 0);
	CHECK((request.ifr_flags & (IFF_UP | IFF_RUNNING | IFF_NOARP)) ==
	      (IFF_UP | IFF_RUNNING | IFF_NOARP));
	memset(&request, 0, sizeof(request));
	request.ifr_ifindex = index;
	CHECK(ioctl(fd, SIOCGIFNAME, &request) == 0 && strcmp(request.ifr_name, NEAR) == 0);
	strcpy(request.ifr_name, "can7");
	FAILS(ENODEV, ioctl(fd, SIOCGIFINDEX, &request));
	strcpy(request.ifr_name, NEAR);
	FAILS(EBADF, ioctl(0x7fff, SIOCGIFINDEX, &request));
	close(fd);
	/* The same of a socket that is bound. */
	fd = bound(NEAR);
	CHECK(ioctl(fd, SIOCGIFINDEX, &request) == 0 && request.ifr_ifindex == (int)index);
	strcpy(request.ifr_name, "can7");
	FAILS(ENODEV, ioctl(fd, SIOCGIFINDEX, &request));
	/* One of Linux's. */
	strcpy(request.ifr_name, "lo");
	CHECK(ioctl(fd, SIOCGIFINDEX, &request) == 0);
	CHECK(request.ifr_ifindex == (int)if_nametoindex("lo"));
	close(fd);
}

CASE(ethtool_tells_who_drives_an_interface)
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ethtool_value link = { .cmd = ETHTOOL_GLINK };
	struct ifreq asked = { .ifr_data = (char *)&driver };
	int fds[] = { raw(), socket(AF_INET, SOCK_DGRAM, 0), bound(NEAR) };

	strcpy(asked.ifr_name, NEAR);
	for (int i = 0; i < 3; i++) {
		asked.ifr_data = (char *)&driver;
		CHECK(ioctl(fds[i], SIOCETHTOOL, &asked) == 0);
		CHECK(driver.cmd == ETHTOOL_GDRVINFO && driver.driver[0]);
		asked.ifr_data = (char *)&link;
		FAILS(EOPNOTSUPP, ioctl(fds[i], SIOCETHTOOL, &asked));
		close(fds[i]);
	}
}

/* None asks for more than no data: behind such a frame, QEMU's controllers lose their place. */
CASE(frames_go_both_ways)
{
	static const struct { canid_t id; const char *data; } all[] = {
		{ 0, "" }, { 0x123, "a" }, { 0x7ff, "12345678" }, { CAN_EFF_FLAG, "x" },
		{ CAN_EFF_FLAG | 0x1fffffff, "abcdefgh" }, { CAN_EFF_FLAG | 0x12345, "" },
		{ CAN_RTR_FLAG | 0x55, "" }, { CAN_EFF_FLAG | CAN_RTR_FLAG | 0x5555, "" },
	};
	int near = bound(NEAR), far = bound(FAR);

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		put(near, all[i].id, all[i].data);
		CHECK(gets(far, all[i].id, all[i].data));
		put(far, all[i].id, all[i].data);
		CHECK(gets(near, all[i].id, all[i].data));
	}
	/* In their order. */
	for (int i = 0; i < 8; i++)
		put(far, i, "order");
	for (int i = 0; i < 8; i++)
		CHECK(gets(near, i, "order"));
	CHECK(gets_nothing(near) && gets_nothing(far));
	close(near);
	close(far);
}

CASE(what_is_no_frame_is_refused)
{
	struct can_frame made = frame(1, "abc");
	struct canfd_frame longer = { .can_id = 1, .len = 12 };
	struct sockaddr_can to = address(NEAR);
	int near = bound(NEAR), fd = raw();

	FAILS(EINVAL, write(near, &made, 8));
	FAILS(EINVAL, write(near, &made, 0));
	FAILS(EINVAL, write(near, &longer, sizeof(longer)));
	CHECK(set(near, SOL_CAN_RAW, CAN_RAW_FD_FRAMES, 1) == 0);
	FAILS(EINVAL, write(near, &longer, sizeof(longer)));
	made.can_dlc = 9;
	FAILS(EINVAL, write(near, &made, sizeof(made)));
	made.can_dlc = 3;
	FAILS(EFAULT, write(near, at(8), sizeof(made)));
	/* It is bound to no interface. */
	FAILS(ENXIO, write(fd, &made, sizeof(made)));
	FAILS(EINVAL, bind(fd, (struct sockaddr *)&to, 4));
	to.can_ifindex = 0x7ffffff;
	FAILS(ENODEV, bind(fd, (struct sockaddr *)&to, sizeof(to)));
	FAILS(ENXIO, sendto(near, &made, sizeof(made), 0, (struct sockaddr *)&to, sizeof(to)));
	to.can_family = AF_INET;
	FAILS(EINVAL, sendto(near, &made, sizeof(made), 0, (struct sockaddr *)&to, sizeof(to)));
	close(near);
	close(fd);
}

CASE(what_a_socket_of_frames_does_not_do)
{
	struct sockaddr_can to = address(NEAR);
	socklen_t length = sizeof(to);
	int fd = bound(NEAR);

	FAILS(EOPNOTSUPP, connect(fd, (struct sockaddr *)&to, sizeof(to)));
	FAILS(EOPNOTSUPP, listen(fd, 1));
	FAILS(EOPNOTSUPP, accept(fd, NULL, NULL));
	FAILS(EOPNOTSUPP, shutdown(fd, SHUT_RDWR));
	FAILS(EOPNOTSUPP, getpeername(fd, (struct sockaddr *)&to, &length));
	FAILS(ESPIPE, lseek(fd, 0, SEEK_SET));
	FAILS(EINVAL, ftruncate(fd, 0));
	FAILS(EAGAIN, recv(fd, &to, sizeof(to), MSG_ERRQUEUE));
	FAILS(EAGAIN, recv(fd, &to, sizeof(to), MSG_OOB | MSG_DONTWAIT));
	close(fd);
	FAILS(EBADF, bind(fd, (struct sockaddr *)&to, sizeof(to)));
	fd = open("/dev/zero", O_RDWR);
	FAILS(ENOTSOCK, bind(fd, (struct sockaddr *)&to, sizeof(to)));
	close(fd);
}

CASE(a_socket_knows_what_it_is)
{
	struct sockaddr_can name = { 0 };
	socklen_t length = sizeof(name);
	struct stat status;
	int fd = bound(NEAR);

	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
	CHECK(name.can_family == AF_CAN && name.can_ifindex == (int)if_nametoindex(NEAR));
	SAY("address of %u bytes", length);
	CHECK(get(fd, SOL_SOCKET, SO_TYPE) == SOCK_RAW);
	CHECK(get(fd, SOL_SOCKET, SO_DOMAIN) == AF_CAN);
	SAY("protocol %d", get(fd, SOL_SOCKET, SO_PROTOCOL));
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
	CHECK(fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode));
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK((fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == O_RDWR);
	close(fd);
}

/* Options of all sockets, of which most have no meaning for CAN. */
static void keeps_options(int fd)
{
	static const int flags[] = {
		SO_DEBUG, SO_REUSEADDR, SO_DONTROUTE, SO_BROADCAST, SO_KEEPALIVE, SO_OOBINLINE,
		SO_NO_CHECK, SO_PASSCRED,
	};
	static const int told[] = {
		SO_ACCEPTCONN, SO_BSDCOMPAT, SO_PREFER_BUSY_POLL, SO_INCOMING_NAPI_ID, SO_ZEROCOPY,
		SO_SNDLOWAT, SO_BPF_EXTENSIONS, SO_INCOMING_CPU, SO_BUSY_POLL,
	};
	static const int fixed[] = { SO_ACCEPTCONN, SO_SNDLOWAT, SO_PEERCRED, SO_COOKIE };
	struct linger linger = { 1, 7 };
	struct { int pid, uid, gid; } peer;
	unsigned long long cookie = 0, again = 1;
	socklen_t length = sizeof(linger);

	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		CHECK(get(fd, SOL_SOCKET, flags[i]) == 0);
		CHECK(set(fd, SOL_SOCKET, flags[i], 5) == 0);
		CHECK(get(fd, SOL_SOCKET, flags[i]) == 1);
		CHECK(set(fd, SOL_SOCKET, flags[i], 0) == 0);
		CHECK(get(fd, SOL_SOCKET, flags[i]) == 0);
		FAILS(EINVAL, setsockopt(fd, SOL_SOCKET, flags[i], &fd, 3));
	}
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++)
		SAY("option %d: %d", told[i], get(fd, SOL_SOCKET, told[i]));
	for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		FAILS(ENOPROTOOPT, set(fd, SOL_SOCKET, fixed[i], 1));
	CHECK(get(fd, SOL_SOCKET, SO_RCVLOWAT) == 1);
	CHECK(set(fd, SOL_SOCKET, SO_RCVLOWAT, 9) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_RCVLOWAT) == 9);
	CHECK(set(fd, SOL_SOCKET, SO_RCVLOWAT, 0) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_RCVLOWAT) == 1);
	CHECK(set(fd, SOL_SOCKET, SO_PRIORITY, 7) == 0 && get(fd, SOL_SOCKET, SO_PRIORITY) == 7);
	CHECK(set(fd, SOL_SOCKET, SO_MARK, 77) == 0 && get(fd, SOL_SOCKET, SO_MARK) == 77);
	FAILS(EINVAL, set(fd, SOL_SOCKET, SO_BUSY_POLL, -1));
	FAILS(EOPNOTSUPP, set(fd, SOL_SOCKET, SO_PEEK_OFF, 1));
	FAILS(EOPNOTSUPP, getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &peer, &length));

	/* The time stays when it is turned off. */
	FAILS(EINVAL, setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4));
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	linger = (struct linger){ 0, 3 };
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) == 0);
	CHECK(length == sizeof(linger) && linger.l_onoff == 0 && linger.l_linger == 7);

	length = sizeof(peer);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0);
	CHECK(length == sizeof(peer) && peer.pid == 0 && peer.uid == -1 && peer.gid == -1);
	length = sizeof(cookie);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &again, &length) == 0);
	CHECK(length == sizeof(cookie) && cookie != 0 && cookie == again);
}

CASE(options_of_all_sockets_are_kept)
{
	unsigned long long first = 0, second = 0;
	socklen_t length = sizeof(first);
	struct sockaddr_can to = address(NEAR);
	int fd = raw(), jobs = socket(AF_CAN, SOCK_DGRAM, CAN_BCM);

	/* What was set, and told, before there was an interface. */
	CHECK(set(fd, SOL_SOCKET, SO_KEEPALIVE, 1) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_PRIORITY, 3) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &first, &length) == 0);
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 && get(fd, SOL_SOCKET, SO_PRIORITY) == 3);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &second, &length) == 0 && first == second);
	CHECK(set(fd, SOL_SOCKET, SO_KEEPALIVE, 0) == 0);
	keeps_options(fd);
	CHECK(connect(jobs, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(getsockopt(jobs, SOL_SOCKET, SO_COOKIE, &second, &length) == 0 && first != second);
	keeps_options(jobs);
	close(jobs);
	close(fd);
}

/* As Linux has it, an interface that is named so is kept, and nothing else: bind decides. */
CASE(an_interface_that_is_named_by_an_option)
{
	struct sockaddr_can to = address(NEAR);
	char name[IFNAMSIZ] = "?";
	socklen_t length = sizeof(name);
	int fd = raw(), jobs = socket(AF_CAN, SOCK_DGRAM, CAN_BCM);

	FAILS(ENODEV, setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "none", 5));
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0 && length == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, NEAR, strlen(NEAR)) == 0);
	length = sizeof(name);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0);
	CHECK(length == sizeof(NEAR) && strcmp(name, NEAR) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_BINDTOIFINDEX) == (int)to.can_ifindex);
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_BINDTOIFINDEX) == (int)to.can_ifindex);
	length = sizeof(name) - 1;
	FAILS(EINVAL, getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
	FAILS(ENODEV, setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "none", 5));
	FAILS(EINVAL, set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, -1));
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_BINDTOIFINDEX) == 0);

	CHECK(connect(jobs, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(setsockopt(jobs, SOL_SOCKET, SO_BINDTODEVICE, NEAR, sizeof(NEAR)) == 0);
	CHECK(get(jobs, SOL_SOCKET, SO_BINDTOIFINDEX) == (int)to.can_ifindex);
	close(jobs);
	close(fd);
}

CASE(filters_choose_frames)
{
	struct can_filter some[] = {
		{ 0x100, CAN_SFF_MASK }, { 0x200, 0x700 },
		{ CAN_EFF_FLAG | 0x300, CAN_EFF_FLAG | 0x700 },
	};
	struct can_filter none = { 0x100 | CAN_INV_FILTER, CAN_SFF_MASK };
	int near = raw(), far = bound(FAR);
	struct sockaddr_can to = address(NEAR);

	/* Set before it is bound, and afterwards. */
	CHECK(setsockopt(near, SOL_CAN_RAW, CAN_RAW_FILTER, some, sizeof(some)) == 0);
	CHECK(bind(near, (struct sockaddr *)&to, sizeof(to)) == 0);
	put(far, 0x101, "no");
	put(far, 0x100, "one");
	put(far, 0x234, "two");
	put(far, 0x300, "no");
	put(far, CAN_EFF_FLAG | 0x345, "three");
	CHECK(gets(near, 0x100, "one") && gets(near, 0x234, "two"));
	CHECK(gets(near, CAN_EFF_FLAG | 0x345, "three"));
	CHECK(setsockopt(near, SOL_CAN_RAW, CAN_RAW_FILTER, &none, sizeof(none)) == 0);
	put(far, 0x100, "no");
	put(far, 0x101, "other");
	CHECK(gets(near, 0x101, "other"));
	CHECK(setsockopt(near, SOL_CAN_RAW, CAN_RAW_FILTER, NULL, 0) == 0);
	put(far, 0x101, "no");
	CHECK(gets_nothing(near));
	close(near);
	close(far);
}

CASE(joined_filters_all_have_to_match)
{
	struct can_filter both[] = { { 0x100, 0x700 }, { 0x123 | CAN_INV_FILTER, CAN_SFF_MASK } };
	int near = bound(NEAR), far = bound(FAR);

	CHECK(setsockopt(near, SOL_CAN_RAW, CAN_RAW_FILTER, both, sizeof(both)) == 0);
	CHECK(set(near, SOL_CAN_RAW, CAN_RAW_JOIN_FILTERS, 1) == 0);
	put(far, 0x123, "no");
	put(far, 0x223, "no");
	put(far, 0x124, "yes");
	CHECK(gets(near, 0x124, "yes"));
	close(near);
	close(far);
}

CASE(filters_are_told_as_they_were_set)
{
	static struct can_filter many[CAN_RAW_FILTER_MAX + 1], told[CAN_RAW_FILTER_MAX];
	socklen_t length = sizeof(told);
	int fd = bound(NEAR), far = bound(FAR);

	CHECK(getsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, told, &length) == 0);
	CHECK(length == sizeof(*told) && told[0].can_mask == 0);
	for (int i = 0; i <= CAN_RAW_FILTER_MAX; i++)
		many[i] = (struct can_filter){ i, CAN_SFF_MASK };
	FAILS(EINVAL, setsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, many, sizeof(many)));
	FAILS(EINVAL, setsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, many, 12));
	CHECK(setsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, many, sizeof(told)) == 0);
	length = sizeof(told);
	CHECK(getsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, told, &length) == 0);
	CHECK(length == sizeof(told) && memcmp(many, told, sizeof(told)) == 0);
	length = 8;
	FAILS(ERANGE, getsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, told, &length));
	CHECK(length == sizeof(told));
	put(far, CAN_RAW_FILTER_MAX, "no");
	put(far, CAN_RAW_FILTER_MAX - 1, "last");
	CHECK(gets(fd, CAN_RAW_FILTER_MAX - 1, "last"));
	close(fd);
	close(far);
}

CASE(options_are_kept)
{
	static const int names[] = {
		CAN_RAW_ERR_FILTER, CAN_RAW_LOOPBACK, CAN_RAW_RECV_OWN_MSGS, CAN_RAW_FD_FRAMES,
		CAN_RAW_JOIN_FILTERS,
	};
	int fd = raw();
	struct sockaddr_can to = address(NEAR);

	CHECK(set(fd, SOL_CAN_RAW, CAN_RAW_ERR_FILTER, CAN_ERR_BUSOFF) == 0);
	CHECK(set(fd, SOL_CAN_RAW, CAN_RAW_LOOPBACK, 0) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_RCVBUF, 10000) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1) == 0);
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(get(fd, SOL_CAN_RAW, CAN_RAW_ERR_FILTER) == CAN_ERR_BUSOFF);
	CHECK(get(fd, SOL_CAN_RAW, CAN_RAW_LOOPBACK) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_RCVBUF) == 20000);
	CHECK(get(fd, SOL_SOCKET, SO_RXQ_OVFL) == 1);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CHECK(set(fd, SOL_CAN_RAW, names[i], 1) == 0);
		CHECK(get(fd, SOL_CAN_RAW, names[i]) == 1);
		FAILS(EINVAL, setsockopt(fd, SOL_CAN_RAW, names[i], &fd, 2));
	}
	CHECK(set(fd, SOL_SOCKET, SO_RCVBUF, 1) == 0 && set(fd, SOL_SOCKET, SO_SNDBUF, 1) == 0);
	SAY("least buffers: %d, %d", get(fd, SOL_SOCKET, SO_RCVBUF),
	       get(fd, SOL_SOCKET, SO_SNDBUF));
	FAILS(ENOPROTOOPT, set(fd, SOL_CAN_RAW, 99, 1));
	FAILS(ENOPROTOOPT, set(fd, SOL_SOCKET, 0x7fff, 1));
	FAILS(EINVAL, set(fd, SOL_CAN_BASE + 7, 1, 1));
	FAILS(EFAULT, setsockopt(fd, SOL_CAN_RAW, CAN_RAW_LOOPBACK, at(8), 4));
	close(fd);
}

/* The flags with which the next frame comes, or -1. */
static int flags_of(int fd)
{
	struct can_frame got;
	struct iovec vector = { &got, sizeof(got) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	if (!ready(fd, POLLIN, PATIENCE) || recvmsg(fd, &message, 0) != sizeof(got))
		return -1;
	return message.msg_flags;
}

CASE(other_sockets_hear_what_is_sent)
{
	int near = bound(NEAR), other = bound(NEAR), far = bound(FAR);

	put(near, 0x10, "heard");
	CHECK(flags_of(other) == MSG_DONTROUTE);
	CHECK(gets(far, 0x10, "heard"));
	CHECK(gets_nothing(near));
	CHECK(set(near, SOL_CAN_RAW, CAN_RAW_RECV_OWN_MSGS, 1) == 0);
	put(near, 0x11, "own");
	CHECK(flags_of(near) == (MSG_DONTROUTE | MSG_CONFIRM));
	CHECK(flags_of(other) == MSG_DONTROUTE);
	CHECK(gets(far, 0x11, "own"));
	CHECK(set(near, SOL_CAN_RAW, CAN_RAW_LOOPBACK, 0) == 0);
	put(near, 0x12, "hidden");
	CHECK(gets(far, 0x12, "hidden"));
	CHECK(gets_nothing(other) && gets_nothing(near));
	put(far, 0x13, "far");
	CHECK(flags_of(near) == 0 && flags_of(other) == 0);
	close(near);
	close(other);
	close(far);
}

CASE(one_that_is_bound_to_all_hears_of_which)
{
	struct sockaddr_can from = { 0 }, to = address(NEAR);
	socklen_t length = sizeof(from);
	struct can_frame got;
	int all = bound(NULL), far = bound(FAR);

	put(far, 0x21, "all");
	/* The far end may be heard as well. */
	do {
		CHECK(ready(all, POLLIN, PATIENCE));
		length = sizeof(from);
		CHECK(recvfrom(all, &got, sizeof(got), 0, (struct sockaddr *)&from, &length) ==
		      sizeof(got));
	} while (from.can_ifindex != to.can_ifindex);
	CHECK(got.can_id == 0x21 && from.can_family == AF_CAN);
	FAILS(ENXIO, write(all, &got, sizeof(got)));
	CHECK(sendto(all, &got, sizeof(got), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(got));
	CHECK(gets(far, 0x21, "all"));
	close(all);
	close(far);
}

CASE(one_that_is_not_bound_sends_where_it_is_told)
{
	struct sockaddr_can to = address(NEAR);
	struct can_frame made = frame(0x31, "sent");
	struct iovec vector = { &made, sizeof(made) };
	struct msghdr message = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &vector, .msg_iovlen = 1,
	};
	struct sockaddr *name = (struct sockaddr *)&to;
	int fd = raw(), far = bound(FAR);

	CHECK(sendto(fd, &made, sizeof(made), 0, name, sizeof(to)) == sizeof(made));
	CHECK(gets(far, 0x31, "sent"));
	close(fd);
	fd = raw();
	CHECK(sendmsg(fd, &message, 0) == sizeof(made));
	CHECK(gets(far, 0x31, "sent"));
	put(far, 0x32, "no");
	CHECK(gets_nothing(fd));
	close(fd);
	close(far);
}

CASE(who_waits_waits_as_long_as_it_wants)
{
	struct timeval time = { 0, 100000 };
	struct can_frame got;
	int near = bound(NEAR);
	long start = milliseconds();

	FAILS(EAGAIN, recv(near, &got, sizeof(got), MSG_DONTWAIT));
	CHECK(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	FAILS(EAGAIN, read(near, &got, sizeof(got)));
	/* Linux counts in ticks of up to 4 ms, and the one that has begun. */
	CHECK(milliseconds() - start >= 95);
	CHECK(fcntl(near, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EAGAIN, read(near, &got, sizeof(got)));
	time.tv_usec = 1000000;
	FAILS(EDOM, setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	close(near);
}

CASE(a_frame_wakes_who_waits)
{
	struct can_frame got;
	int near = bound(NEAR), far = bound(FAR);
	pid_t child = fork();

	if (child == 0) {
		pause_for(100);
		put(far, 0x41, "wake");
		_exit(0);
	}
	CHECK(read(near, &got, sizeof(got)) == sizeof(got) && got.can_id == 0x41);
	CHECK(exits_with(child, 0));
	/* One that a child has inherited. */
	child = fork();
	if (child == 0)
		_exit(!gets(near, 0x42, "child"));
	pause_for(100);
	put(far, 0x42, "child");
	CHECK(exits_with(child, 0));
	close(near);
	close(far);
}

CASE(a_signal_ends_the_wait)
{
	struct sigaction action = { .sa_handler = note };
	struct can_frame got;
	int near = bound(NEAR);

	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	/* Again and again: the first one may come before the wait. */
	ualarm(100000, 100000);
	FAILS(EINTR, read(near, &got, sizeof(got)));
	ualarm(0, 0);
	CHECK(caught == SIGALRM);
	close(near);
}

CASE(readiness_is_told)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct timeval time = { PATIENCE / 1000, 0 };
	int near = bound(NEAR), far = bound(FAR), set = epoll_create1(0);
	fd_set read_set;

	CHECK(ready(near, POLLIN | POLLOUT, 0) == POLLOUT);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, near, &event) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	put(far, 0x51, "ready");
	CHECK(epoll_wait(set, &event, 1, PATIENCE) == 1 && event.events == EPOLLIN);
	FD_ZERO(&read_set);
	FD_SET(near, &read_set);
	CHECK(select(near + 1, &read_set, NULL, NULL, &time) == 1);
	CHECK(gets(near, 0x51, "ready"));
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	close(set);
	close(near);
	close(far);
}

CASE(a_signal_tells_of_a_frame)
{
	int near = raw(), far = bound(FAR);
	struct sockaddr_can at = address(NEAR);

	/* Also if it was asked for before the socket had an interface. */
	CHECK(drive(near) && bind(near, (struct sockaddr *)&at, sizeof(at)) == 0);
	CHECK(fcntl(near, F_GETOWN) == getpid() && fcntl(near, F_GETSIG) == TELLS);
	CHECK(fcntl(near, F_GETFL) == (O_RDWR | O_ASYNC));
	put(far, 0x52, "told");
	CHECK(is_driven(near, POLL_IN) && gets(near, 0x52, "told"));
	close(near);
	close(far);
}

CASE(a_frame_can_be_looked_at_and_cut_off)
{
	struct can_frame got = { 0 };
	char little[4];
	struct iovec vector = { little, sizeof(little) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	int near = bound(NEAR), far = bound(FAR);

	put(far, 0x61, "peek");
	CHECK(ready(near, POLLIN, PATIENCE));
	CHECK(recv(near, &got, sizeof(got), MSG_PEEK) == sizeof(got) && got.can_id == 0x61);
	CHECK(recvmsg(near, &message, MSG_PEEK) == 4 && message.msg_flags == MSG_TRUNC);
	CHECK(recv(near, little, sizeof(little), MSG_PEEK | MSG_TRUNC) == 4);
	CHECK(read(near, little, sizeof(little)) == 4 && *(canid_t *)little == 0x61);
	CHECK(gets_nothing(near));
	close(near);
	close(far);
}

/* When the next frame came by its control message of that kind, in nanoseconds; 0 without one. */
static long stamp_of(int fd, int kind)
{
	struct can_frame got;
	char control[256];
	struct iovec vector = { &got, sizeof(got) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *part;
	struct timespec time;

	CHECK(ready(fd, POLLIN, PATIENCE) && recvmsg(fd, &message, 0) == sizeof(got));
	part = CMSG_FIRSTHDR(&message);
	if (!part || part->cmsg_level != SOL_SOCKET || part->cmsg_type != kind)
		return 0;
	memcpy(&time, CMSG_DATA(part), sizeof(time));
	if (kind == SCM_TIMESTAMP)
		time.tv_nsec *= 1000;
	SAY("control message of %zu bytes, %zu in all", (size_t)part->cmsg_len,
	       (size_t)message.msg_controllen);
	return nanoseconds(time);
}

CASE(frames_have_timestamps)
{
	static const struct { int name, value, kind; } kinds[] = {
		{ SO_TIMESTAMP, 1, SCM_TIMESTAMP },
		{ SO_TIMESTAMPNS, 1, SCM_TIMESTAMPNS },
		/* SOF_TIMESTAMPING_RX_SOFTWARE and _SOFTWARE. */
		{ SO_TIMESTAMPING, 1 << 3 | 1 << 4, SCM_TIMESTAMPING },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		int near = bound(NEAR), far = bound(FAR);
		long before = shown(CLOCK_REALTIME), stamp;

		CHECK(set(near, SOL_SOCKET, kinds[i].name, kinds[i].value) == 0);
		CHECK(get(near, SOL_SOCKET, kinds[i].name) == kinds[i].value);
		put(far, 0x71, "when");
		stamp = stamp_of(near, kinds[i].kind);
		/* Clocks of the two may differ by microseconds. */
		CHECK(stamp > before - 10000000 && stamp < shown(CLOCK_REALTIME) + 10000000);
		close(near);
		close(far);
	}
}

CASE(a_timestamp_may_be_asked_for_when_the_frame_is_there)
{
	static const int names[] = { SO_TIMESTAMP, SO_TIMESTAMPNS };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		int near = bound(NEAR), far = bound(FAR);
		long before = shown(CLOCK_REALTIME), stamp;

		put(far, 0x71, "when");
		CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
		CHECK(set(near, SOL_SOCKET, names[i], 1) == 0);
		stamp = stamp_of(near, names[i]);
		CHECK(stamp > before - 10000000 && stamp < shown(CLOCK_REALTIME) + 10000000);
		close(near);
		close(far);
	}
}

CASE(the_last_timestamp_is_told)
{
	int near = bound(NEAR), far = bound(FAR);
	struct can_frame got;
	struct timespec time;
	long earlier;

	FAILS(ENOENT, ioctl(near, SIOCGSTAMPNS, &time));
	put(far, 0x72, "when");
	CHECK(gets(near, 0x72, "when"));
	CHECK(ioctl(near, SIOCGSTAMPNS, &time) == 0);
	CHECK(labs(nanoseconds(time) - shown(CLOCK_REALTIME)) < 1000000000L * PATIENCE / 1000);
	/* Also that of a message of which nothing else is told. */
	earlier = nanoseconds(time);
	put(far, 0x73, "then");
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(read(near, &got, sizeof(got)) == sizeof(got));
	CHECK(ioctl(near, SIOCGSTAMPNS, &time) == 0);
	CHECK(nanoseconds(time) > earlier);
	close(near);
	close(far);
}

CASE(frames_without_room_are_lost_and_counted)
{
	struct can_frame got;
	char control[256];
	struct iovec vector = { &got, sizeof(got) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int near = bound(NEAR), far = bound(FAR), last = bound(NEAR), count = 0;

	CHECK(set(near, SOL_SOCKET, SO_RCVBUF, 1) == 0);
	CHECK(set(near, SOL_SOCKET, SO_RXQ_OVFL, 1) == 0);
	for (int i = 0; i < 30; i++) {
		put(far, i, "many");
		CHECK(gets(last, i, "many"));
	}
	while (recv(near, &got, sizeof(got), MSG_DONTWAIT) > 0)
		CHECK(got.can_id == (canid_t)count++);
	CHECK(count > 0 && count < 30);
	put(far, 99, "after");
	CHECK(ready(near, POLLIN, PATIENCE) && recvmsg(near, &message, 0) == sizeof(got));
	CHECK(got.can_id == 99 && CMSG_FIRSTHDR(&message));
	CHECK(CMSG_FIRSTHDR(&message)->cmsg_type == SO_RXQ_OVFL);
	CHECK(*(uint32_t *)CMSG_DATA(CMSG_FIRSTHDR(&message)) == (uint32_t)(30 - count));
	close(near);
	close(far);
	close(last);
}

CASE(a_smaller_buffer_keeps_what_waits)
{
	int near = bound(NEAR), far = bound(FAR), last = bound(NEAR);

	for (int i = 0; i < 10; i++) {
		put(far, i, "stay");
		CHECK(gets(last, i, "stay"));
	}
	CHECK(set(near, SOL_SOCKET, SO_RCVBUF, 1) == 0);
	put(far, 11, "lost");
	CHECK(gets(last, 11, "lost"));
	for (int i = 0; i < 10; i++)
		CHECK(gets(near, i, "stay"));
	put(far, 12, "more");
	CHECK(gets(near, 12, "more"));
	close(near);
	close(far);
	close(last);
}

CASE(several_go_by_one_call)
{
	struct can_frame frames[3];
	struct iovec vectors[3];
	struct mmsghdr messages[3] = { 0 };
	int near = bound(NEAR), far = bound(FAR);

	for (int i = 0; i < 3; i++) {
		frames[i] = frame(0x80 + i, "many");
		vectors[i] = (struct iovec){ &frames[i], sizeof(frames[i]) };
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK(sendmmsg(near, messages, 3, 0) == 3 && messages[2].msg_len == sizeof(*frames));
	for (int i = 0; i < 3; i++)
		CHECK(gets(far, 0x80 + i, "many"));
	for (int i = 0; i < 2; i++) {
		put(far, 0x90 + i, "back");
		pause_for(50);
	}
	CHECK(ready(near, POLLIN, PATIENCE));
	pause_for(100);
	CHECK(recvmmsg(near, messages, 3, MSG_WAITFORONE, NULL) == 2);
	CHECK(frames[0].can_id == 0x90 && frames[1].can_id == 0x91);
	close(near);
	close(far);
}

CASE(a_socket_is_shared_by_its_copies)
{
	int near = bound(NEAR), far = bound(FAR), copy = dup(near), placed = dup2(near, 100);

	CHECK(copy > near && placed == 100);
	close(near);
	put(copy, 0xa1, "copy");
	CHECK(gets(far, 0xa1, "copy"));
	put(far, 0xa2, "back");
	CHECK(gets(placed, 0xa2, "back"));
	CHECK(gets_nothing(copy));
	close(copy);
	close(placed);
	close(far);
}

CASE(a_socket_can_be_bound_anew)
{
	struct sockaddr_can to = address(NEAR);
	int fd = bound(NULL), far = bound(FAR);

	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	put(far, 0xb1, "anew");
	CHECK(gets(fd, 0xb1, "anew"));
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	put(far, 0xb2, "again");
	CHECK(gets(fd, 0xb2, "again"));
	close(fd);
	close(far);
}

/* A message of the broadcast manager with up to four frames. */
struct broadcast {
	struct bcm_msg_head head;
	struct can_frame frames[4];
};

static int manager(const char *name)
{
	struct sockaddr_can to = address(name);
	int fd = socket(AF_CAN, SOCK_DGRAM | SOCK_CLOEXEC, CAN_BCM);

	CHECK(fd >= 0);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

static struct bcm_timeval interval(int milliseconds)
{
	return (struct bcm_timeval){ milliseconds / 1000, milliseconds % 1000 * 1000 };
}

/* Bytes of a message with so many frames. */
static ssize_t length_of(int frames)
{
	return sizeof(struct bcm_msg_head) + frames * sizeof(struct can_frame);
}

/* Sends a message with so many of its frames; whether it was taken. */
static int tell(int fd, struct broadcast *message, int frames)
{
	ssize_t length = length_of(frames);

	message->head.nframes = frames;
	return write(fd, message, length) == length;
}

/* Looks at the next message, which stays; its length. */
static ssize_t peeks(int fd, struct broadcast *told)
{
	memset(told, 0, sizeof(*told));
	return ready(fd, POLLIN, PATIENCE) ? recv(fd, told, sizeof(*told), MSG_PEEK) : -1;
}

/* Whether the next message is of that kind, and has as many frames; it is left in `told`. */
static int is_told(int fd, struct broadcast *told, unsigned int opcode, unsigned int frames)
{
	return ready(fd, POLLIN, PATIENCE) &&
	       read(fd, told, sizeof(*told)) == length_of(frames) &&
	       told->head.opcode == opcode && told->head.nframes == frames;
}

CASE(a_manager_knows_its_interface)
{
	struct sockaddr_can to = address(NEAR);
	struct broadcast message = { .head = { .opcode = TX_READ } };
	int fd = socket(AF_CAN, SOCK_DGRAM | SOCK_CLOEXEC, CAN_BCM);
	socklen_t length = sizeof(to);

	FAILS(ENOTCONN, write(fd, &message, sizeof(message.head)));
	FAILS(EINVAL, connect(fd, (struct sockaddr *)&to, 4));
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	FAILS(EISCONN, connect(fd, (struct sockaddr *)&to, sizeof(to)));
	FAILS(EOPNOTSUPP, bind(fd, (struct sockaddr *)&to, sizeof(to)));
	FAILS(EOPNOTSUPP, getsockname(fd, (struct sockaddr *)&to, &length));
	FAILS(EINVAL, write(fd, &message, sizeof(message.head)));
	FAILS(EINVAL, write(fd, &message, 8));
	FAILS(EINVAL, write(fd, &message, sizeof(message.head) + 3));
	message.head.opcode = 99;
	FAILS(EINVAL, write(fd, &message, sizeof(message.head)));
	FAILS(EAGAIN, recv(fd, &message, sizeof(message), MSG_DONTWAIT));
	close(fd);
}

CASE(frames_are_sent_again_and_again)
{
	struct broadcast message = {
		.head = {
			.opcode = TX_SETUP, .count = 3,
			.flags = SETTIMER | STARTTIMER | TX_COUNTEVT,
			.ival1 = interval(20), .ival2 = interval(50), .can_id = 0x111,
		},
		.frames = { frame(0x111, "one"), frame(0x111, "two") },
	}, told;
	int fd = manager(NEAR), far = bound(FAR);
	long start = milliseconds();

	CHECK(tell(fd, &message, 2));
	for (int i = 0; i < 3; i++)
		CHECK(gets(far, 0x111, i % 2 ? "two" : "one"));
	CHECK(is_told(fd, &told, TX_EXPIRED, 0) && told.head.can_id == 0x111);
	for (int i = 3; i < 6; i++)
		CHECK(gets(far, 0x111, i % 2 ? "two" : "one"));
	CHECK(milliseconds() - start >= 2 * 20 + 3 * 50 - 5);
	/* It is told as it was set up. */
	message.head.opcode = TX_READ;
	CHECK(tell(fd, &message, 0));
	CHECK(peeks(fd, &told) == length_of(2) && told.head.opcode == TX_STATUS);
	CHECK(memcmp(told.frames, message.frames, 2 * sizeof(struct can_frame)) == 0);
	CHECK(is_told(fd, &told, TX_STATUS, 2) && told.head.ival2.tv_usec == 50000);
	CHECK(memcmp(told.frames, message.frames, 2 * sizeof(struct can_frame)) == 0);
	/* Other data, at the same times. */
	message.head.opcode = TX_SETUP;
	message.head.flags = TX_CP_CAN_ID;
	message.frames[0] = message.frames[1] = frame(0x222, "new");
	CHECK(tell(fd, &message, 2));
	do {
		struct can_frame got;

		CHECK(ready(far, POLLIN, PATIENCE) && read(far, &got, sizeof(got)) == sizeof(got));
		CHECK(got.can_id == 0x111);
		if (memcmp(got.data, "new", 3) == 0)
			break;
	} while (1);
	FAILS(E2BIG, (tell(fd, &message, 3) ? 0 : -1));
	message.head.opcode = TX_DELETE;
	CHECK(tell(fd, &message, 0));
	FAILS(EINVAL, (tell(fd, &message, 0) ? 0 : -1));
	while (ready(far, POLLIN, NEVER))
		CHECK(read(far, &told, sizeof(struct can_frame)) == sizeof(struct can_frame));
	close(fd);
	close(far);
}

CASE(one_frame_is_sent_at_once)
{
	struct broadcast message = {
		.head = { .opcode = TX_SEND },
		.frames = { frame(0x33, "x") },
	};
	int fd = manager(NEAR), far = bound(FAR);

	CHECK(tell(fd, &message, 1));
	CHECK(gets(far, 0x33, "x"));
	FAILS(EINVAL, (tell(fd, &message, 2) ? 0 : -1));
	message.head.opcode = TX_SETUP;
	FAILS(EINVAL, (tell(fd, &message, 0) ? 0 : -1));
	close(fd);
	close(far);
}

CASE(a_job_ends_with_its_socket)
{
	struct broadcast message = {
		.head = {
			.opcode = TX_SETUP, .flags = SETTIMER | STARTTIMER, .ival2 = interval(10),
			.can_id = 0x44,
		},
		.frames = { frame(0x44, "x") },
	};
	struct can_frame got;
	int far = bound(FAR);
	pid_t child = fork();

	if (child == 0) {
		if (!tell(manager(NEAR), &message, 1))
			_exit(1);
		pause_for(100000);
	}
	CHECK(gets(far, 0x44, "x") && gets(far, 0x44, "x"));
	kill(child, SIGKILL);
	CHECK(ends_by(child, SIGKILL));
	while (ready(far, POLLIN, NEVER))
		CHECK(read(far, &got, sizeof(got)) == sizeof(got));
	close(far);
}

CASE(changes_are_told)
{
	struct broadcast message = {
		.head = { .opcode = RX_SETUP, .can_id = 0x55 },
		.frames = { { .can_id = 0x55, .can_dlc = 8, .data = { 0xff } } },
	}, told;
	int fd = manager(NEAR), far = bound(FAR);
	struct timespec time;

	CHECK(tell(fd, &message, 1));
	FAILS(ENOENT, ioctl(fd, SIOCGSTAMPNS, &time));
	put(far, 0x55, "a1");
	for (int i = 0; i < 2; i++)
		CHECK(peeks(fd, &told) == length_of(1) && told.head.opcode == RX_CHANGED &&
		      memcmp(told.frames[0].data, "a1", 2) == 0);
	CHECK(is_told(fd, &told, RX_CHANGED, 1) && memcmp(told.frames[0].data, "a1", 2) == 0);
	FAILS(EAGAIN, recv(fd, &told, sizeof(told), MSG_PEEK | MSG_DONTWAIT));
	CHECK(ioctl(fd, SIOCGSTAMPNS, &time) == 0);
	put(far, 0x55, "a2");
	put(far, 0x56, "b");
	put(far, 0x55, "b3");
	CHECK(is_told(fd, &told, RX_CHANGED, 1) && memcmp(told.frames[0].data, "b3", 2) == 0);
	message.head.opcode = RX_READ;
	CHECK(tell(fd, &message, 0));
	CHECK(is_told(fd, &told, RX_STATUS, 1) && told.frames[0].data[0] == 0xff);
	message.head.opcode = RX_DELETE;
	CHECK(tell(fd, &message, 0));
	FAILS(EINVAL, (tell(fd, &message, 0) ? 0 : -1));
	put(far, 0x55, "c");
	CHECK(gets_nothing(fd));
	close(fd);
	close(far);
}

CASE(silence_is_told)
{
	struct broadcast message = {
		.head = {
			.opcode = RX_SETUP,
			.flags = RX_FILTER_ID | SETTIMER | STARTTIMER | RX_ANNOUNCE_RESUME,
			.ival1 = interval(100), .can_id = 0x66,
		},
	}, told;
	int fd = manager(NEAR), far = bound(FAR);

	CHECK(tell(fd, &message, 0));
	CHECK(is_told(fd, &told, RX_TIMEOUT, 0) && told.head.can_id == 0x66);
	CHECK(gets_nothing(fd));
	put(far, 0x66, "back");
	CHECK(is_told(fd, &told, RX_CHANGED, 1));
	CHECK(is_told(fd, &told, RX_TIMEOUT, 0));
	close(fd);
	close(far);
}

CASE(who_asks_for_data_is_answered)
{
	struct broadcast message = {
		.head = {
			.opcode = RX_SETUP, .flags = RX_RTR_FRAME,
			.can_id = CAN_RTR_FLAG | 0x77,
		},
		.frames = { frame(0x77, "here") },
	};
	int fd = manager(NEAR), far = bound(FAR);

	CHECK(tell(fd, &message, 1));
	put(far, CAN_RTR_FLAG | 0x77, "");
	CHECK(gets(far, 0x77, "here"));
	close(fd);
	close(far);
}
