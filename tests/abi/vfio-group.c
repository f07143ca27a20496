// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Two devices edu of one group, FUNCTION and SIBLING: each is a device of its own, and both reach
 * what their container has mapped.
 */
#define _GNU_SOURCE
#include "check.h"
#include "vfio.h"

#define HERE 0x100000UL
#define THERE 0x200000UL

static struct edu first, second;

static const char *sibling(void)
{
	const char *name = getenv("SIBLING");

	return name ? name : "";
}

static void opens(void)
{
	CHECK(open_edu(&first, VFIO_TYPE1v2_IOMMU) == 0);
	second = first;
	second.device = ioctl(first.group, VFIO_GROUP_GET_DEVICE_FD, sibling());
	CHECK(second.device >= 0);
	second.registers = mmap(NULL, 0x100000, PROT_READ | PROT_WRITE, MAP_SHARED,
				second.device, 0);
	CHECK(second.registers != MAP_FAILED);
	CHECK(master(&second, 1) == 0);
}

static void closes(void)
{
	munmap((void *)second.registers, 0x100000);
	close(second.device);
	close_edu(&first);
}

static uint64_t counted(int event)
{
	uint64_t count = 0;

	CHECK(read(event, &count, sizeof(count)) == sizeof(count));
	return count;
}

CASE(each_function_is_a_device_of_its_own)
{
	uint16_t command;

	opens();
	put(&first, LIVENESS, 1);
	put(&second, LIVENESS, 2);
	CHECK(get(&first, LIVENESS) == ~1u && get(&second, LIVENESS) == ~2u);
	/* One masters the bus, and the other one does not. */
	CHECK(master(&first, 0) == 0);
	CHECK(pread(second.device, &command, sizeof(command),
		    place_of_configuration(second.device) + CONFIGURED) == sizeof(command));
	CHECK(command & MASTER);
	FAILS(ENODEV, ioctl(first.group, VFIO_GROUP_GET_DEVICE_FD, "0000:00:1e.6"));
	closes();
}

CASE(both_reach_what_their_container_has_mapped)
{
	unsigned char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	opens();
	CHECK(map_for(&first, memory, HERE, PAGE, BOTH) == 0);
	CHECK(map_for(&first, memory + PAGE, THERE, PAGE, BOTH) == 0);
	memset(memory, 'a', PAGE);
	to_device(&first, HERE, PAGE);
	memset(memory, 'b', PAGE);
	to_device(&second, HERE, PAGE);
	from_device(&first, THERE, PAGE);
	CHECK(memory[PAGE] == 'a' && memory[2 * PAGE - 1] == 'a');
	from_device(&second, THERE, PAGE);
	CHECK(memory[PAGE] == 'b' && memory[2 * PAGE - 1] == 'b');
	/* Neither does what is not mapped any more. */
	CHECK(unmap_for(&first, THERE, PAGE, 0) == (long)PAGE);
	from_device(&first, THERE, PAGE);
	CHECK(memory[PAGE] == 'b');
	closes();
}

CASE(the_group_stays_while_one_is_open)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	int group;

	opens();
	CHECK(ioctl(first.group, VFIO_GROUP_GET_STATUS, &status) == 0);
	CHECK(status.flags == (VFIO_GROUP_FLAGS_VIABLE | VFIO_GROUP_FLAGS_CONTAINER_SET));
	munmap((void *)first.registers, 0x100000);
	close(first.device);
	FAILS(EBUSY, ioctl(first.group, VFIO_GROUP_UNSET_CONTAINER));
	/* It can be had once more. */
	first.device = ioctl(first.group, VFIO_GROUP_GET_DEVICE_FD, function());
	CHECK(first.device >= 0);
	close(first.device);
	close(first.group);
	FAILS(EBUSY, open(group_name(), O_RDWR));
	put(&second, LIVENESS, 3);
	CHECK(get(&second, LIVENESS) == ~3u);
	munmap((void *)second.registers, 0x100000);
	close(second.device);
	group = open(group_name(), O_RDWR);
	CHECK(group >= 0);
	CHECK(ioctl(group, VFIO_GROUP_SET_CONTAINER, &first.container) == 0);
	CHECK(ioctl(group, VFIO_GROUP_UNSET_CONTAINER) == 0);
	CHECK(ioctl(group, VFIO_GROUP_GET_STATUS, &status) == 0);
	CHECK(status.flags == VFIO_GROUP_FLAGS_VIABLE);
	close(group);
	close(first.container);
}

CASE(messages_of_each_come_to_its_own_eventfd)
{
	int one = eventfd(0, 0), other = eventfd(0, EFD_NONBLOCK);
	uint64_t count;

	opens();
	CHECK(hear(&first, VFIO_PCI_MSI_IRQ_INDEX, one) == 0);
	CHECK(hear(&second, VFIO_PCI_MSI_IRQ_INDEX, other) == 0);
	put(&first, RAISE, 1);
	CHECK(counted(one) == 1);
	put(&first, ACKNOWLEDGE, 1);
	FAILS(EAGAIN, read(other, &count, sizeof(count)));
	CHECK(fcntl(other, F_SETFL, 0) == 0);
	put(&second, RAISE, 1);
	CHECK(counted(other) == 1);
	put(&second, ACKNOWLEDGE, 1);
	closes();
	close(one);
	close(other);
}
