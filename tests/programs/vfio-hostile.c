// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * vfio-hostile WHAT
 *
 * Misuses QEMU's device edu, by VFIO: the PCI function that the variable FUNCTION names. edu begins
 * a transfer a tenth of a second after it is asked to.
 *
 * reach	has it write where nothing is mapped, the kernel's image among that; asks for memory
 *		that is not the program's.
 * race		again and again, lets it transfer to a page that is then unmapped for it and by the
 *		program; nothing else changes.
 * tables	maps one page as often as that is possible, far apart; what is refused leaves the
 *		rest as it was.
 * many		maps one page so often, side by side, that a list of all would be too long for the
 *		kernel's heap, and unmaps all at once; then memory in pieces, which are as many.
 * transfer	has it write for ever to pages that are mapped; to be killed.
 * watch	fills so many megabytes of memory; tells so, and after a while whether any of it has
 *		changed.
 * hold		keeps it open and touches a register every millisecond; says "wanted" when Linux
 *		wants it back. SIGBUS ends it, with "lost" if calls then say ENODEV.
 * enter	has its group in a container, and nothing else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>

#include "../abi/vfio.h"

#define HERE 0x100000UL
#define IMAGE 0x200000UL
#define MEGABYTE 0x100000UL

#define ASSERT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s: %m\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

static struct edu edu;
static sigjmp_buf lost;

static unsigned char *memory(unsigned long size)
{
	/* In pages of 2 MiB, if there are such. */
	unsigned char *found = mmap(NULL, size, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	ASSERT(found != MAP_FAILED);
	return found;
}

static int is_all(const unsigned char *bytes, unsigned long count, unsigned char value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, count - 1) == 0;
}

static int refused(void *address, int error)
{
	return map_for(&edu, address, HERE, PAGE, READS) == -1 && errno == error;
}

static int reach(void)
{
	unsigned char *page = memory(PAGE);
	unsigned long vdso = getauxval(AT_SYSINFO_EHDR);
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	/* Something to write. */
	memset(page, 0xa5, PAGE);
	ASSERT(map_for(&edu, page, HERE, PAGE, READS) == 0);
	to_device(&edu, HERE, PAGE);
	ASSERT(unmap_for(&edu, HERE, PAGE, 0) == (long)PAGE);
	for (unsigned long at = 0; at < 8 * PAGE; at += PAGE) {
		from_device(&edu, at, PAGE);
		from_device(&edu, IMAGE + at, PAGE);
	}
	/* The kernel's addresses, none, the device's own, the page of clocks. */
	ASSERT(refused((void *)0xffffffff80200000UL, EFAULT) || errno == EINVAL);
	ASSERT(refused((void *)0x800000000000UL, EFAULT));
	ASSERT(refused((void *)PAGE, EFAULT));
	ASSERT(refused((void *)edu.registers, EFAULT));
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[vvar]"))
			ASSERT(refused((void *)strtoul(line, NULL, 16), EFAULT));
	ASSERT(vdso != 0);
	fclose(maps);
	return 0;
}

static int race(void)
{
	for (int round = 0; round < 12; round++) {
		unsigned char *page = memory(PAGE), *next;

		memset(page, 0x5a, PAGE);
		ASSERT(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
		to_device(&edu, HERE, PAGE);
		memset(page, 0, PAGE);
		copy(&edu, BUFFER, HERE, PAGE, TO_MEMORY);
		/* About when it begins. */
		usleep(90000 + 2000 * round);
		ASSERT(unmap_for(&edu, HERE, PAGE, 0) == (long)PAGE);
		munmap(page, PAGE);
		next = memory(64 * PAGE);
		memset(next, round + 1, 64 * PAGE);
		copied(&edu);
		usleep(20000);
		ASSERT(is_all(next, 64 * PAGE, round + 1));
		munmap(next, 64 * PAGE);
	}
	return 0;
}

static int tables(void)
{
	unsigned char *page = memory(PAGE);
	unsigned long count = 0;

	memset(page, 0x5a, PAGE);
	while (count < 100000 && map_for(&edu, page, HERE + (count << 21), PAGE, BOTH) == 0)
		count++;
	ASSERT(errno == ENOMEM && count > 100 && count < 100000);
	/* What was mapped is reached still. */
	to_device(&edu, HERE, PAGE);
	memset(page, 0, PAGE);
	from_device(&edu, HERE + (1UL << 21), PAGE);
	ASSERT(is_all(page, PAGE, 0x5a));
	/* What goes makes room. */
	ASSERT(unmap_for(&edu, HERE, PAGE, 0) == (long)PAGE);
	ASSERT(map_for(&edu, page, HERE + (count << 21), PAGE, BOTH) == 0);
	ASSERT(map_for(&edu, page, HERE, PAGE, BOTH) == -1 && errno == ENOMEM);
	ASSERT(unmap_for(&edu, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL) == (long)(count * PAGE));
	ASSERT(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	printf("%lu\n", count);
	return 0;
}

static int many(void)
{
	unsigned long count = 20000, pages = 66000;
	unsigned char *page = memory(PAGE), *all;

	for (unsigned long at = 0; at < count; at++)
		ASSERT(map_for(&edu, page, HERE + at * PAGE, PAGE, BOTH) == 0);
	ASSERT(unmap_for(&edu, HERE, count * PAGE, 0) == (long)(count * PAGE));
	for (unsigned long at = 0; at < count; at++)
		ASSERT(map_for(&edu, page, HERE + at * PAGE, PAGE, BOTH) == 0);
	ASSERT(unmap_for(&edu, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL) == (long)(count * PAGE));
	all = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT(all != MAP_FAILED && madvise(all, pages * PAGE, MADV_NOHUGEPAGE) == 0);
	/* No page lies behind the one before it. */
	for (unsigned long first = 0; first < 2; first++)
		for (unsigned long at = first; at < pages; at += 2)
			all[at * PAGE] = 0x5a;
	ASSERT(map_for(&edu, all, HERE, pages * PAGE, READS) == 0);
	to_device(&edu, HERE + (pages - 1) * PAGE, PAGE);
	ASSERT(unmap_for(&edu, HERE, pages * PAGE, 0) == (long)(pages * PAGE));
	return 0;
}

static int transfer(void)
{
	unsigned long size = 8 * MEGABYTE;
	unsigned char *all = memory(size);

	memset(all, 0xee, size);
	ASSERT(map_for(&edu, all, HERE, size, BOTH) == 0);
	to_device(&edu, HERE, PAGE);
	puts("transfers");
	fflush(stdout);
	for (unsigned long at = 0;; at = (at + PAGE) % size)
		from_device(&edu, HERE + at, PAGE);
}

static int watch(unsigned long megabytes)
{
	unsigned long size = megabytes * MEGABYTE;
	unsigned char *all = memory(size);

	memset(all, 0x11, size);
	puts("filled");
	fflush(stdout);
	for (int round = 0; round < 3; round++) {
		usleep(200000);
		ASSERT(is_all(all, size, 0x11));
	}
	puts("unchanged");
	return 0;
}

static void on_bus_error(int number)
{
	(void)number;
	siglongjmp(lost, 1);
}

static int hold(void)
{
	struct vfio_device_info info = { .argsz = sizeof(info) };
	unsigned char *page = memory(PAGE);
	int event = eventfd(0, EFD_NONBLOCK);
	uint64_t count;

	ASSERT(map_for(&edu, page, HERE, PAGE, BOTH) == 0);
	ASSERT(hear(&edu, VFIO_PCI_REQ_IRQ_INDEX, event) == 0);
	signal(SIGBUS, on_bus_error);
	if (sigsetjmp(lost, 1)) {
		struct vfio_region_info region = { .argsz = sizeof(region) };

		/* The kernel looks what there is. */
		while (ioctl(edu.device, VFIO_DEVICE_GET_REGION_INFO, &region) == 0)
			usleep(1000);
		ASSERT(errno == ENODEV);
		ASSERT(pread(edu.device, &count, 4, 0) == -1 && errno == ENODEV);
		/* What was mapped is given back as always. */
		ASSERT(map_for(&edu, page, HERE + PAGE, PAGE, BOTH) == -1);
		puts("lost");
		return 0;
	}
	for (;;) {
		put(&edu, LIVENESS, 5);
		ASSERT(get(&edu, LIVENESS) == ~5u);
		if (read(event, &count, sizeof(count)) == sizeof(count)) {
			puts("wanted");
			fflush(stdout);
		}
		usleep(1000);
	}
}

static int enter(void)
{
	int container = open(CONTAINER, O_RDWR), group = open(group_name(), O_RDWR);

	if (container < 0 || group < 0 || ioctl(group, VFIO_GROUP_SET_CONTAINER, &container)) {
		perror("enter");
		return 1;
	}
	return 0;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";

	if (strcmp(what, "enter") == 0)
		return enter();
	if (strcmp(what, "watch") == 0)
		return watch(count > 2 ? strtoul(arguments[2], NULL, 10) : 1);
	ASSERT(open_edu(&edu, VFIO_TYPE1v2_IOMMU) == 0);
	if (strcmp(what, "reach") == 0)
		return reach();
	if (strcmp(what, "race") == 0)
		return race();
	if (strcmp(what, "tables") == 0)
		return tables();
	if (strcmp(what, "many") == 0)
		return many();
	if (strcmp(what, "transfer") == 0)
		return transfer();
	return hold();
}
