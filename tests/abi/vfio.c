// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * QEMU's device edu, driven by a program through VFIO: its group and container, its registers and
 * configuration space, transfers to and from memory of the program, messages and the pin to
 * eventfds, and what is refused. With NO_PIN set, the realm does not have the line of the pin.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"
#include "vfio.h"
#include "waiting.h"

#define TYPE VFIO_TYPE1v2_IOMMU
/* Where the device finds things: edu has 28 bits for addresses. */
#define HERE 0x100000UL
#define THERE 0x200000UL

static struct edu edu;

static void opens(void)
{
	CHECK(open_edu(&edu, TYPE) == 0);
}

static int no_pin(void)
{
	return !!getenv("NO_PIN");
}

static unsigned char *memory(unsigned long pages)
{
	unsigned char *found = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(found != MAP_FAILED);
	return found;
}

static void fill(unsigned char *page, int seed)
{
	for (unsigned int i = 0; i < PAGE; i++)
		page[i] = i * 7 + seed;
}

static int is_filled(const unsigned char *page, int seed)
{
	for (unsigned int i = 0; i < PAGE; i++)
		if (page[i] != (unsigned char)(i * 7 + seed))
			return 0;
	return 1;
}

CASE(a_container_tells_what_it_knows)
{
	int container = open(CONTAINER, O_RDWR);

	CHECK(container >= 0);
	CHECK(ioctl(container, VFIO_GET_API_VERSION) == VFIO_API_VERSION);
	CHECK(ioctl(container, VFIO_CHECK_EXTENSION, VFIO_TYPE1_IOMMU) == 1);
	CHECK(ioctl(container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) == 1);
	CHECK(ioctl(container, VFIO_CHECK_EXTENSION, VFIO_NOIOMMU_IOMMU) == 0);
	CHECK(ioctl(container, VFIO_CHECK_EXTENSION, 1000) == 0);
	/* There is no group in it. */
	FAILS(EINVAL, ioctl(container, VFIO_SET_IOMMU, TYPE));
	FAILS(EINVAL, ioctl(container, VFIO_IOMMU_GET_INFO, NULL));
	FAILS(EINVAL, ioctl(container, FIONREAD, NULL));
	close(container);
}

CASE(a_group_goes_into_a_container_and_out_of_it)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	int container = open(CONTAINER, O_RDWR), group = open(group_name(), O_RDWR);
	int none = -1, other = open("/dev/null", O_RDWR), device;

	CHECK(container >= 0 && group >= 0);
	FAILS(EBUSY, open(group_name(), O_RDWR));
	CHECK(ioctl(group, VFIO_GROUP_GET_STATUS, &status) == 0);
	CHECK(status.flags == VFIO_GROUP_FLAGS_VIABLE);
	FAILS(EINVAL, ioctl(group, VFIO_GROUP_UNSET_CONTAINER));
	FAILS(EINVAL, ioctl(group, VFIO_GROUP_GET_DEVICE_FD, function()));
	FAILS(ENODEV, ioctl(group, VFIO_GROUP_GET_DEVICE_FD, "0000:00:1e.6"));
	FAILS(EBADF, ioctl(group, VFIO_GROUP_SET_CONTAINER, &none));
	CHECK(ioctl(group, VFIO_GROUP_SET_CONTAINER, &group) == -1);
	FAILS(EFAULT, ioctl(group, VFIO_GROUP_SET_CONTAINER, 8));
	CHECK(ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) == 0);
	FAILS(EINVAL, ioctl(group, VFIO_GROUP_SET_CONTAINER, &container));
	FAILS(EINVAL, ioctl(group, VFIO_GROUP_GET_DEVICE_FD, function()));
	CHECK(ioctl(group, VFIO_GROUP_GET_STATUS, &status) == 0);
	CHECK(status.flags == (VFIO_GROUP_FLAGS_VIABLE | VFIO_GROUP_FLAGS_CONTAINER_SET));
	FAILS(ENODEV, ioctl(container, VFIO_SET_IOMMU, 1000));
	CHECK(ioctl(container, VFIO_SET_IOMMU, TYPE) == 0);
	FAILS(EINVAL, ioctl(container, VFIO_SET_IOMMU, TYPE));
	device = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, function());
	CHECK(device >= 0 && fcntl(device, F_GETFD) == FD_CLOEXEC);
	FAILS(EBUSY, ioctl(group, VFIO_GROUP_UNSET_CONTAINER));
	/* The group lives as long as its function is open. */
	close(group);
	FAILS(EBUSY, open(group_name(), O_RDWR));
	close(device);
	group = open(group_name(), O_RDWR);
	CHECK(group >= 0);
	/* The container is empty, and begins anew. */
	FAILS(EINVAL, ioctl(container, VFIO_SET_IOMMU, TYPE));
	CHECK(ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) == 0);
	CHECK(ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) == 0);
	CHECK(ioctl(group, VFIO_GROUP_UNSET_CONTAINER) == 0);
	status.argsz = 4;
	FAILS(EINVAL, ioctl(group, VFIO_GROUP_GET_STATUS, &status));
	close(other);
	close(group);
	close(container);
}

CASE(a_function_tells_what_it_has)
{
	struct vfio_device_info info = { .argsz = sizeof(info) };
	struct vfio_region_info region = { .argsz = sizeof(region) };
	struct vfio_irq_info interrupts = { .argsz = sizeof(interrupts) };

	opens();
	CHECK(ioctl(edu.device, VFIO_DEVICE_GET_INFO, &info) == 0);
	CHECK((info.flags & ~VFIO_DEVICE_FLAGS_RESET) == VFIO_DEVICE_FLAGS_PCI);
	CHECK(info.num_regions == VFIO_PCI_NUM_REGIONS && info.num_irqs == VFIO_PCI_NUM_IRQS);
	for (region.index = 0; region.index < 7; region.index++) {
		CHECK(ioctl(edu.device, VFIO_DEVICE_GET_REGION_INFO, &region) == 0);
		SAY("region %u: %#llx bytes, flags %u", region.index, region.size, region.flags);
		CHECK(region.index > 0 || region.offset == 0);
	}
	region.index = VFIO_PCI_CONFIG_REGION_INDEX;
	CHECK(ioctl(edu.device, VFIO_DEVICE_GET_REGION_INFO, &region) == 0);
	SAY("configuration: %#llx bytes, flags %u", region.size, region.flags);
	for (region.index = 8; region.index < 20; region.index++)
		FAILS(EINVAL, ioctl(edu.device, VFIO_DEVICE_GET_REGION_INFO, &region));
	region.index = 0;
	region.argsz = 8;
	FAILS(EINVAL, ioctl(edu.device, VFIO_DEVICE_GET_REGION_INFO, &region));
	for (interrupts.index = no_pin(); interrupts.index < 6; interrupts.index++) {
		int known = ioctl(edu.device, VFIO_DEVICE_GET_IRQ_INFO, &interrupts) == 0;

		SAY("interrupts %u: %d, %u, flags %u", interrupts.index, known,
		    known ? interrupts.count : 0, known ? interrupts.flags : 0);
	}
	FAILS(ENOTTY, ioctl(edu.device, FIONREAD, &info));
	close_edu(&edu);
}

CASE(a_container_tells_what_functions_can_name)
{
	char room[256] = "";
	struct vfio_iommu_type1_info *info = (void *)room;
	struct vfio_info_cap_header *capability;
	unsigned int needed;

	opens();
	info->argsz = 16;
	CHECK(ioctl(edu.container, VFIO_IOMMU_GET_INFO, info) == 0);
	CHECK(info->flags & VFIO_IOMMU_INFO_PGSIZES && info->iova_pgsizes & PAGE);
	info->argsz = sizeof(*info);
	CHECK(ioctl(edu.container, VFIO_IOMMU_GET_INFO, info) == 0);
	needed = info->argsz;
	CHECK(info->flags & VFIO_IOMMU_INFO_CAPS && info->cap_offset == 0);
	CHECK(needed > sizeof(*info));
	info->argsz = sizeof(room);
	CHECK(ioctl(edu.container, VFIO_IOMMU_GET_INFO, info) == 0);
	for (unsigned int at = info->cap_offset; at; at = capability->next) {
		struct vfio_iommu_type1_info_cap_iova_range *ranges;

		CHECK(at < needed);
		capability = (void *)(room + at);
		ranges = (void *)capability;
		if (capability->id != VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)
			continue;
		SAY("the first range is to %#llx", ranges->iova_ranges[0].end);
	}
	close_edu(&edu);
}

CASE(registers_are_the_devices)
{
	uint32_t word = 0x12345678;
	uint64_t beyond = 0x100000;

	opens();
	SAY("it is %#x", get(&edu, IDENTIFICATION));
	put(&edu, LIVENESS, 1);
	CHECK(get(&edu, LIVENESS) == ~1u);
	CHECK(pwrite(edu.device, &word, 4, LIVENESS) == 4);
	CHECK(get(&edu, LIVENESS) == ~word);
	CHECK(pread(edu.device, &word, 4, LIVENESS) == 4 && word == ~0x12345678u);
	/* At the descriptor's own position, which is at the start. */
	CHECK(read(edu.device, &word, 4) == 4 && word == get(&edu, IDENTIFICATION));
	FAILS(EINVAL, pread(edu.device, &word, 4, beyond));
	CHECK(pread(edu.device, &word, 0, 0) == 0);
	FAILS(EFAULT, pread(edu.device, at(8), 4, LIVENESS));
	FAILS(EINVAL, pread(edu.device, &word, 4, 20UL << 40));
	FAILS(EINVAL, mmap(NULL, beyond + PAGE, PROT_READ, MAP_SHARED, edu.device, 0));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, edu.device, beyond));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, edu.device, 1UL << 40));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, edu.device, 7UL << 40));
	close_edu(&edu);
}

CASE(configuration_space_is_virtual)
{
	uint32_t word, base;
	uint64_t place;
	uint16_t half;
	uint8_t bytes[256];

	opens();
	place = place_of_configuration(edu.device);
	CHECK(pread(edu.device, &word, 4, place) == 4);
	SAY("vendor and device: %#x", word);
	CHECK(pread(edu.device, &half, 2, place + 2) == 2);
	SAY("device: %#x", half);
	CHECK(pread(edu.device, bytes, 256, place) == 256 && memcmp(bytes, &word, 4) == 0);
	FAILS(EFAULT, pread(edu.device, &word, 4, place + 254));
	FAILS(EFAULT, pread(edu.device, &word, 4, place + 0x10000));
	/* Its size, and then again its address. */
	CHECK(pread(edu.device, &base, 4, place + 0x10) == 4);
	word = ~0u;
	CHECK(pwrite(edu.device, &word, 4, place + 0x10) == 4);
	CHECK(pread(edu.device, &word, 4, place + 0x10) == 4);
	SAY("size: %#x", word);
	CHECK(pwrite(edu.device, &base, 4, place + 0x10) == 4);
	CHECK(pread(edu.device, &word, 4, place + 0x10) == 4 && word == base);
	/* Who it is cannot be written. */
	half = 0;
	CHECK(pwrite(edu.device, &half, 2, place) == 2);
	CHECK(pread(edu.device, &half, 2, place) == 2 && half == 0x1234);
	CHECK(master(&edu, 0) == 0);
	CHECK(pread(edu.device, &half, 2, place + CONFIGURED) == 2 && !(half & MASTER));
	CHECK(master(&edu, 1) == 0);
	CHECK(pread(edu.device, &half, 2, place + CONFIGURED) == 2 && half & MASTER);
	CHECK(get(&edu, IDENTIFICATION) != 0);
	close_edu(&edu);
}

CASE(the_device_copies_to_and_from_memory)
{
	unsigned char *from = memory(1), *to = memory(1);

	opens();
	fill(from, 3);
	CHECK(map_for(&edu, from, HERE, PAGE, READS) == 0);
	CHECK(map_for(&edu, to, THERE, PAGE, BOTH) == 0);
	to_device(&edu, HERE, PAGE);
	from_device(&edu, THERE, PAGE);
	CHECK(is_filled(to, 3));
	/* What it only reads stays as it is. */
	fill(from, 4);
	from_device(&edu, HERE, PAGE);
	CHECK(is_filled(from, 4));
	/* Without the bus it copies nothing. */
	fill(to, 5);
	CHECK(master(&edu, 0) == 0);
	from_device(&edu, THERE, PAGE);
	CHECK(is_filled(to, 5));
	CHECK(master(&edu, 1) == 0);
	from_device(&edu, THERE, PAGE);
	CHECK(is_filled(to, 3));
	close_edu(&edu);
}

CASE(each_page_is_where_it_was_mapped)
{
	enum { PAGES = 300 };
	unsigned char *all = memory(PAGES);

	opens();
	for (int i = 0; i < PAGES; i++)
		fill(all + i * PAGE, i);
	CHECK(map_for(&edu, all, HERE, PAGES * PAGE, BOTH) == 0);
	for (int i = 0; i < PAGES; i += 37) {
		to_device(&edu, HERE + i * PAGE, PAGE);
		from_device(&edu, HERE + (i + 1) * PAGE, PAGE);
		CHECK(is_filled(all + (i + 1) * PAGE, i));
		CHECK(is_filled(all + (i + 2) * PAGE, i + 2));
	}
	CHECK(unmap_for(&edu, HERE, PAGES * PAGE, 0) == PAGES * PAGE);
	close_edu(&edu);
}

CASE(what_is_not_mapped_is_not_reached)
{
	unsigned char *page = memory(1), *again = memory(1);

	opens();
	fill(page, 1);
	CHECK(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	to_device(&edu, HERE, PAGE);
	fill(page, 2);
	CHECK(unmap_for(&edu, HERE, PAGE, 0) == PAGE);
	from_device(&edu, HERE, PAGE);
	CHECK(is_filled(page, 2));
	/* Nor when the same address leads to something else. */
	CHECK(map_for(&edu, again, HERE, PAGE, BOTH) == 0);
	from_device(&edu, HERE, PAGE);
	CHECK(is_filled(page, 2) && is_filled(again, 1));
	/* Nor after the group has left, and another container has come. */
	fill(again, 3);
	close_edu(&edu);
	opens();
	from_device(&edu, HERE, PAGE);
	CHECK(is_filled(again, 3));
	close_edu(&edu);
}

CASE(pages_stay_while_the_program_unmaps_them)
{
	unsigned char *page = memory(1), *new;

	opens();
	fill(page, 1);
	CHECK(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	CHECK(munmap(page, PAGE) == 0);
	new = mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0);
	CHECK(new == page);
	fill(new, 2);
	/* The device has what was there. */
	to_device(&edu, HERE, PAGE);
	from_device(&edu, HERE, PAGE);
	CHECK(is_filled(new, 2));
	CHECK(map_for(&edu, new, THERE, PAGE, BOTH) == 0);
	from_device(&edu, THERE, PAGE);
	CHECK(is_filled(new, 1));
	close_edu(&edu);
}

CASE(large_pages_stay_as_well)
{
	enum { PAGES = 2048 };
	const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	unsigned char *all = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, how, -1, 0), *new;

	CHECK(all != MAP_FAILED);
	opens();
	fill(all, 1);
	CHECK(map_for(&edu, all, HERE, PAGES * PAGE, BOTH) == 0);
	to_device(&edu, HERE, PAGE);
	CHECK(munmap(all, PAGES * PAGE) == 0);
	new = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, how, -1, 0);
	CHECK(new != MAP_FAILED);
	for (int i = 0; i < PAGES; i += 97)
		from_device(&edu, HERE + i * PAGE, PAGE);
	for (int i = 0; i < PAGES * (int)PAGE; i++)
		CHECK(new[i] == 0);
	close_edu(&edu);
}

CASE(a_child_has_a_copy_of_what_the_device_reaches)
{
	unsigned char *page = memory(1);
	pid_t child;

	opens();
	CHECK(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	fill(page, 1);
	child = fork();
	if (child == 0) {
		CHECK(is_filled(page, 1));
		fill(page, 9);
		_exit(3);
	}
	CHECK(exits_with(child, 3));
	/* The parent's page is still the device's. */
	to_device(&edu, HERE, PAGE);
	fill(page, 2);
	from_device(&edu, HERE, PAGE);
	CHECK(is_filled(page, 1));
	close_edu(&edu);
}

CASE(what_cannot_be_mapped_is_refused)
{
	unsigned char *page = memory(4);
	struct vfio_iommu_type1_dma_map map = { .argsz = sizeof(map), .flags = BOTH };

	opens();
	FAILS(EINVAL, map_for(&edu, page, HERE, 0, BOTH));
	FAILS(EINVAL, map_for(&edu, page, HERE, PAGE, 0));
	FAILS(EINVAL, map_for(&edu, page, HERE, PAGE, 0x80));
	FAILS(EINVAL, map_for(&edu, page, HERE + 1, PAGE, BOTH));
	FAILS(EINVAL, map_for(&edu, page + 1, HERE, PAGE, BOTH));
	FAILS(EINVAL, map_for(&edu, page, HERE, PAGE + 1, BOTH));
	FAILS(EINVAL, map_for(&edu, page, -PAGE, 2 * PAGE, BOTH));
	/* Messages. */
	FAILS(EINVAL, map_for(&edu, page, 0xfee00000, PAGE, BOTH));
	FAILS(EINVAL, map_for(&edu, page, 0xfedff000, 2 * PAGE, BOTH));
	/* No memory of the program. */
	FAILS(EFAULT, map_for(&edu, at(PAGE), HERE, PAGE, BOTH));
	FAILS(EFAULT, map_for(&edu, at(-PAGE), HERE, PAGE, BOTH));
	CHECK(munmap(page + 2 * PAGE, PAGE) == 0);
	FAILS(EFAULT, map_for(&edu, page, HERE, 4 * PAGE, BOTH));
	CHECK(mprotect(page + PAGE, PAGE, PROT_READ) == 0);
	FAILS(EFAULT, map_for(&edu, page, HERE, 2 * PAGE, BOTH));
	CHECK(map_for(&edu, page, HERE, 2 * PAGE, READS) == 0);
	CHECK(unmap_for(&edu, HERE, 2 * PAGE, 0) == 2 * PAGE);
	CHECK(mprotect(page, PAGE, PROT_NONE) == 0);
	FAILS(EFAULT, map_for(&edu, page, HERE, PAGE, READS));
	map.argsz = 8;
	FAILS(EINVAL, ioctl(edu.container, VFIO_IOMMU_MAP_DMA, &map));
	FAILS(EFAULT, ioctl(edu.container, VFIO_IOMMU_MAP_DMA, 8));
	close_edu(&edu);
}

CASE(ranges_do_not_overlap_and_go_as_a_whole)
{
	unsigned char *page = memory(8);

	opens();
	CHECK(map_for(&edu, page, HERE, 4 * PAGE, BOTH) == 0);
	CHECK(map_for(&edu, page + 4 * PAGE, HERE + 4 * PAGE, 4 * PAGE, BOTH) == 0);
	FAILS(EEXIST, map_for(&edu, page, HERE, PAGE, BOTH));
	FAILS(EEXIST, map_for(&edu, page, HERE + 3 * PAGE, PAGE, BOTH));
	FAILS(EEXIST, map_for(&edu, page, HERE - PAGE, 2 * PAGE, BOTH));
	FAILS(EINVAL, unmap_for(&edu, HERE, PAGE, 0));
	FAILS(EINVAL, unmap_for(&edu, HERE + PAGE, 3 * PAGE, 0));
	FAILS(EINVAL, unmap_for(&edu, HERE + PAGE, 7 * PAGE, 0));
	FAILS(EINVAL, unmap_for(&edu, HERE, 0, 0));
	FAILS(EINVAL, unmap_for(&edu, HERE + 1, PAGE, 0));
	FAILS(EINVAL, unmap_for(&edu, HERE, PAGE, 0x80));
	CHECK(unmap_for(&edu, THERE, PAGE, 0) == 0);
	CHECK(unmap_for(&edu, HERE - PAGE, 16 * PAGE, 0) == 8 * PAGE);
	CHECK(unmap_for(&edu, HERE, 8 * PAGE, 0) == 0);
	CHECK(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	CHECK(map_for(&edu, page, THERE, PAGE, BOTH) == 0);
	FAILS(EINVAL, unmap_for(&edu, HERE, PAGE, VFIO_DMA_UNMAP_FLAG_ALL));
	CHECK(unmap_for(&edu, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL) == 2 * PAGE);
	close_edu(&edu);
	/* By the older rules a range goes with its first page. */
	CHECK(open_edu(&edu, VFIO_TYPE1_IOMMU) == 0);
	CHECK(map_for(&edu, page, HERE, 4 * PAGE, BOTH) == 0);
	CHECK(unmap_for(&edu, HERE + PAGE, PAGE, 0) == 0);
	CHECK(unmap_for(&edu, HERE, PAGE, 0) == 4 * PAGE);
	close_edu(&edu);
}

CASE(locked_memory_is_limited)
{
	unsigned char *page = memory(16);
	struct rlimit limit = { 8 * PAGE, 8 * PAGE };
	pid_t child;

	opens();
	child = fork();
	if (child == 0) {
		CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		CHECK(setgroups(0, NULL) == 0 && setresuid(65534, 65534, 65534) == 0);
		FAILS(ENOMEM, map_for(&edu, page, HERE, 9 * PAGE, BOTH));
		CHECK(map_for(&edu, page, HERE, 6 * PAGE, BOTH) == 0);
		FAILS(ENOMEM, map_for(&edu, page, THERE, 3 * PAGE, BOTH));
		CHECK(map_for(&edu, page, THERE, 2 * PAGE, BOTH) == 0);
		CHECK(unmap_for(&edu, HERE, 6 * PAGE, 0) == 6 * PAGE);
		CHECK(map_for(&edu, page, HERE, 6 * PAGE, BOTH) == 0);
		CHECK(unmap_for(&edu, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL) == 8 * PAGE);
		_exit(3);
	}
	CHECK(exits_with(child, 3));
	close_edu(&edu);
}

static uint64_t heard(int event)
{
	uint64_t count = 0;

	CHECK(read(event, &count, sizeof(count)) == sizeof(count));
	return count;
}

#define MESSAGES VFIO_PCI_MSI_IRQ_INDEX

/* The descriptor for -1, and SET_IRQS by words. */
static int set_interrupts(uint32_t size, uint32_t flags, uint32_t index, uint32_t start,
			  uint32_t count, const void *data, uint32_t length)
{
	char room[64];
	struct vfio_irq_set *set = (void *)room;

	*set = (struct vfio_irq_set){
		.argsz = size, .flags = flags, .index = index, .start = start, .count = count,
	};
	if (length)
		memcpy(set->data, data, length);
	return ioctl(edu.device, VFIO_DEVICE_SET_IRQS, set);
}

static int stops(uint32_t index)
{
	return set_interrupts(20, VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, index, 0, 0,
			      NULL, 0);
}

static void raise_and_end(void)
{
	put(&edu, RAISE, 1);
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
}

CASE(messages_come_to_an_eventfd)
{
	int event = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	opens();
	CHECK(hear(&edu, MESSAGES, event) == 0);
	for (int i = 0; i < 20; i++) {
		raise_and_end();
		CHECK(heard(event) == 1);
	}
	/* Somebody else hears them. */
	CHECK(hear(&edu, MESSAGES, other) == 0);
	raise_and_end();
	CHECK(ready(other, POLLIN, 10000) == POLLIN && heard(other) == 1);
	CHECK(ready(event, POLLIN, 50) == 0);
	/* Nobody does. */
	CHECK(hear(&edu, MESSAGES, -1) == 0);
	raise_and_end();
	CHECK(ready(other, POLLIN, 50) == 0);
	CHECK(hear(&edu, MESSAGES, event) == 0);
	CHECK(stops(MESSAGES) == 0);
	raise_and_end();
	CHECK(ready(event, POLLIN, 50) == 0);
	CHECK(hear(&edu, MESSAGES, event) == 0);
	raise_and_end();
	CHECK(heard(event) == 1);
	close(event);
	close(other);
	close_edu(&edu);
}

CASE(a_transfer_ends_with_a_message)
{
	int event = eventfd(0, EFD_CLOEXEC);
	unsigned char *page = memory(1);

	opens();
	CHECK(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	CHECK(hear(&edu, MESSAGES, event) == 0);
	fill(page, 7);
	copy(&edu, HERE, BUFFER, PAGE, AND_INTERRUPT);
	CHECK(heard(event) == 1);
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	fill(page, 8);
	copy(&edu, BUFFER, HERE, PAGE, TO_MEMORY | AND_INTERRUPT);
	CHECK(heard(event) == 1);
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	CHECK(is_filled(page, 7));
	close(event);
	close_edu(&edu);
}

CASE(a_program_raises_what_it_hears)
{
	int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), one = event;
	const uint32_t trigger = VFIO_IRQ_SET_ACTION_TRIGGER;
	uint8_t meant = 1;
	uint64_t count;

	opens();
	FAILS(EINVAL, set_interrupts(20, VFIO_IRQ_SET_DATA_NONE | trigger, MESSAGES, 0, 1, NULL,
				     0));
	CHECK(hear(&edu, MESSAGES, event) == 0);
	CHECK(set_interrupts(20, VFIO_IRQ_SET_DATA_NONE | trigger, MESSAGES, 0, 1, NULL, 0) == 0);
	CHECK(heard(event) == 1);
	CHECK(set_interrupts(21, VFIO_IRQ_SET_DATA_BOOL | trigger, MESSAGES, 0, 1, &meant, 1) == 0);
	CHECK(heard(event) == 1);
	meant = 0;
	CHECK(set_interrupts(21, VFIO_IRQ_SET_DATA_BOOL | trigger, MESSAGES, 0, 1, &meant, 1) == 0);
	FAILS(EAGAIN, read(event, &count, sizeof(count)));
	/* That Linux wants the function back is told in the same way. */
	CHECK(set_interrupts(24, VFIO_IRQ_SET_DATA_EVENTFD | trigger, VFIO_PCI_REQ_IRQ_INDEX, 0, 1,
			     &one, 4) == 0);
	CHECK(set_interrupts(20, VFIO_IRQ_SET_DATA_NONE | trigger, VFIO_PCI_REQ_IRQ_INDEX, 0, 1,
			     NULL, 0) == 0);
	CHECK(heard(event) == 1);
	close(event);
	close_edu(&edu);
}

CASE(what_makes_no_sense_of_interrupts_is_refused)
{
	const uint32_t trigger = VFIO_IRQ_SET_ACTION_TRIGGER, by_event = VFIO_IRQ_SET_DATA_EVENTFD;
	int event = eventfd(0, EFD_CLOEXEC), file = open("/dev/null", O_RDWR), closed = 900;

	opens();
	FAILS(EINVAL, set_interrupts(19, by_event | trigger, MESSAGES, 0, 1, &event, 4));
	FAILS(EINVAL, set_interrupts(23, by_event | trigger, MESSAGES, 0, 1, &event, 4));
	FAILS(EINVAL, set_interrupts(24, by_event | trigger, 5, 0, 1, &event, 4));
	FAILS(EINVAL, set_interrupts(24, by_event | trigger, MESSAGES, 1, 1, &event, 4));
	FAILS(EINVAL, set_interrupts(28, by_event | trigger, MESSAGES, 0, 2, &event, 4));
	FAILS(EINVAL, set_interrupts(24, by_event | trigger, MESSAGES, 0, -1, &event, 4));
	FAILS(EINVAL, set_interrupts(24, by_event | VFIO_IRQ_SET_DATA_BOOL | trigger, MESSAGES, 0,
				     1, &event, 4));
	FAILS(EINVAL, set_interrupts(24, trigger, MESSAGES, 0, 1, &event, 4));
	FAILS(EINVAL, set_interrupts(24, by_event | trigger, VFIO_PCI_MSIX_IRQ_INDEX, 0, 1, &event,
				     4));
	FAILS(ENOTTY, set_interrupts(20, VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_MASK,
				     MESSAGES, 0, 1, NULL, 0));
	FAILS(EINVAL, hear(&edu, MESSAGES, file));
	FAILS(EBADF, hear(&edu, MESSAGES, closed));
	/* What was refused has left nothing. */
	FAILS(EINVAL, stops(MESSAGES));
	CHECK(hear(&edu, MESSAGES, event) == 0);
	raise_and_end();
	CHECK(heard(event) == 1);
	close(event);
	close(file);
	close_edu(&edu);
}

#define PIN VFIO_PCI_INTX_IRQ_INDEX

/* Masks the pin, or unmasks it, by no data. */
static int switches(uint32_t action)
{
	return set_interrupts(20, VFIO_IRQ_SET_DATA_NONE | action, PIN, 0, 1, NULL, 0);
}

#define MASK VFIO_IRQ_SET_ACTION_MASK
#define UNMASK VFIO_IRQ_SET_ACTION_UNMASK

/* The command register, and the status register behind it: the pin is off; the function asks. */
#define COMMAND_REGISTER 4
#define PIN_OFF 0x400
#define ASKS 0x80000

static uint32_t command(void)
{
	uint32_t value;

	CHECK(pread(edu.device, &value, sizeof(value),
		    place_of_configuration(edu.device) + COMMAND_REGISTER) == sizeof(value));
	return value;
}

static int asks(void)
{
	return !!(command() & ASKS);
}

static void set_pin_off(int off)
{
	uint16_t value = (command() & ~PIN_OFF) | (off ? PIN_OFF : 0);

	CHECK(pwrite(edu.device, &value, sizeof(value),
		     place_of_configuration(edu.device) + COMMAND_REGISTER) == sizeof(value));
	CHECK(!!(command() & PIN_OFF) == off);
}

/* Whether it has come once, soon. */
static int hears(int event)
{
	return ready(event, POLLIN, 10000) == POLLIN && heard(event) == 1;
}

CASE(the_pin_comes_to_an_eventfd_and_is_masked)
{
	int event = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC);

	if (no_pin())
		return;
	opens();
	CHECK(hear(&edu, PIN, event) == 0);
	for (int i = 0; i < 20; i++) {
		put(&edu, RAISE, 1);
		CHECK(hears(event));
		CHECK(asks());
		put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
		CHECK(!asks());
		CHECK(switches(UNMASK) == 0);
	}
	/* Masked as long as nobody unmasks it; and what was not served comes again. */
	put(&edu, RAISE, 1);
	CHECK(hears(event));
	CHECK(ready(event, POLLIN, 50) == 0);
	CHECK(switches(UNMASK) == 0 && hears(event));
	raise_and_end();
	CHECK(ready(event, POLLIN, 50) == 0);
	CHECK(switches(UNMASK) == 0);
	CHECK(ready(event, POLLIN, 50) == 0);
	/* By the program. */
	CHECK(switches(MASK) == 0 && switches(MASK) == 0);
	put(&edu, RAISE, 1);
	CHECK(ready(event, POLLIN, 50) == 0 && asks());
	CHECK(hear(&edu, PIN, other) == 0);
	CHECK(ready(other, POLLIN, 50) == 0);
	CHECK(switches(UNMASK) == 0 && hears(other));
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	CHECK(stops(PIN) == 0);
	put(&edu, RAISE, 1);
	CHECK(ready(other, POLLIN, 50) == 0 && ready(event, POLLIN, 0) == 0);
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	CHECK(hear(&edu, PIN, event) == 0);
	put(&edu, RAISE, 1);
	CHECK(hears(event) && ready(other, POLLIN, 0) == 0);
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	close(event);
	close(other);
	close_edu(&edu);
}

CASE(the_pin_is_switched_by_the_command_register_as_well)
{
	int event = eventfd(0, EFD_CLOEXEC);

	if (no_pin())
		return;
	opens();
	set_pin_off(0);
	CHECK(hear(&edu, PIN, event) == 0);
	set_pin_off(1);
	put(&edu, RAISE, 1);
	CHECK(ready(event, POLLIN, 50) == 0);
	/* What is off there nothing unmasks. */
	CHECK(switches(UNMASK) == 0);
	CHECK(ready(event, POLLIN, 50) == 0);
	set_pin_off(0);
	CHECK(hears(event));
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	CHECK(stops(PIN) == 0);
	set_pin_off(1);
	CHECK(hear(&edu, PIN, event) == 0);
	put(&edu, RAISE, 1);
	CHECK(ready(event, POLLIN, 50) == 0);
	set_pin_off(0);
	CHECK(hears(event));
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	close(event);
	close_edu(&edu);
}

CASE(the_pin_or_messages)
{
	int event = eventfd(0, EFD_CLOEXEC);

	if (no_pin())
		return;
	opens();
	CHECK(hear(&edu, PIN, event) == 0);
	FAILS(EINVAL, hear(&edu, MESSAGES, event));
	FAILS(EINVAL, stops(MESSAGES));
	CHECK(stops(PIN) == 0);
	FAILS(EINVAL, stops(PIN));
	CHECK(hear(&edu, MESSAGES, event) == 0);
	FAILS(EINVAL, hear(&edu, PIN, event));
	FAILS(EINVAL, stops(PIN));
	FAILS(EINVAL, switches(MASK));
	raise_and_end();
	CHECK(hears(event));
	CHECK(ready(event, POLLIN, 50) == 0);
	CHECK(stops(MESSAGES) == 0);
	CHECK(hear(&edu, PIN, event) == 0);
	put(&edu, RAISE, 1);
	CHECK(hears(event));
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	close(event);
	close_edu(&edu);
}

CASE(what_makes_no_sense_of_the_pin_is_refused)
{
	const uint32_t none = VFIO_IRQ_SET_DATA_NONE, by_event = VFIO_IRQ_SET_DATA_EVENTFD;
	const uint32_t by_bool = VFIO_IRQ_SET_DATA_BOOL, trigger = VFIO_IRQ_SET_ACTION_TRIGGER;
	int event = eventfd(0, EFD_CLOEXEC), file = open("/dev/null", O_RDWR);
	uint8_t meant = 1;

	if (no_pin())
		return;
	opens();
	FAILS(EINVAL, switches(MASK));
	FAILS(EINVAL, switches(UNMASK));
	FAILS(EINVAL, stops(PIN));
	FAILS(EINVAL, set_interrupts(20, none | trigger, PIN, 0, 1, NULL, 0));
	FAILS(EINVAL, set_interrupts(24, by_event | trigger, PIN, 1, 1, &event, 4));
	FAILS(EINVAL, set_interrupts(28, by_event | trigger, PIN, 0, 2, &event, 4));
	FAILS(EINVAL, hear(&edu, PIN, file));
	FAILS(EBADF, hear(&edu, PIN, 900));
	FAILS(EINVAL, switches(MASK));
	CHECK(hear(&edu, PIN, event) == 0);
	FAILS(EINVAL, set_interrupts(20, none | MASK, PIN, 0, 0, NULL, 0));
	FAILS(ENOTTY, set_interrupts(24, by_event | MASK, PIN, 0, 1, &event, 4));
	/* The program raises what it hears, and masks by a byte. */
	CHECK(set_interrupts(20, none | trigger, PIN, 0, 1, NULL, 0) == 0 && hears(event));
	CHECK(set_interrupts(21, by_bool | trigger, PIN, 0, 1, &meant, 1) == 0);
	CHECK(hears(event));
	CHECK(set_interrupts(21, by_bool | MASK, PIN, 0, 1, &meant, 1) == 0);
	put(&edu, RAISE, 1);
	meant = 0;
	CHECK(set_interrupts(21, by_bool | UNMASK, PIN, 0, 1, &meant, 1) == 0);
	CHECK(ready(event, POLLIN, 50) == 0);
	meant = 1;
	CHECK(set_interrupts(21, by_bool | UNMASK, PIN, 0, 1, &meant, 1) == 0);
	CHECK(hears(event));
	put(&edu, ACKNOWLEDGE, get(&edu, PENDING));
	close(event);
	close(file);
	close_edu(&edu);
}
