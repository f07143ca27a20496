/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* QEMU's device edu by VFIO: the PCI function that the variable FUNCTION names. */
#ifndef EDU_BY_VFIO_H
#define EDU_BY_VFIO_H

#include <fcntl.h>
#include <linux/vfio.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define CONTAINER "/dev/vfio/vfio"

/* Registers of edu, in bytes, and its memory. */
#define IDENTIFICATION 0x00
#define LIVENESS 0x04
#define PENDING 0x24
#define RAISE 0x60
#define ACKNOWLEDGE 0x64
#define FROM 0x80
#define TO 0x88
#define COUNT 0x90
#define COMMAND 0x98
#define RUNS 1UL
#define TO_MEMORY 2UL
#define AND_INTERRUPT 4UL
#define BUFFER 0x40000UL

/* In configuration space. */
#define CONFIGURED 0x04
#define MASTER 4

/* What a program has of the function. */
struct edu {
	int container;
	int group;
	int device;
	volatile uint8_t *registers;
};

static inline const char *function(void)
{
	const char *name = getenv("FUNCTION");

	return name ? name : "";
}

/* The file of the function's group. */
static inline const char *group_name(void)
{
	static char name[64];
	char link[256], target[256] = "";

	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s/iommu_group", function());
	if (readlink(link, target, sizeof(target) - 1) < 0 || !strrchr(target, '/'))
		return "";
	snprintf(name, sizeof(name), "/dev/vfio/%.32s", strrchr(target, '/') + 1);
	return name;
}

static inline uint32_t get(const struct edu *edu, long offset)
{
	return *(volatile uint32_t *)(edu->registers + offset);
}

static inline void put(const struct edu *edu, long offset, uint32_t value)
{
	*(volatile uint32_t *)(edu->registers + offset) = value;
}

/* A register of 64 bits, which the device takes as a whole. */
static inline void put_long(const struct edu *edu, long offset, uint64_t value)
{
	*(volatile uint64_t *)(edu->registers + offset) = value;
}

static inline uint64_t place_of_configuration(int device)
{
	struct vfio_region_info info = {
		.argsz = sizeof(info), .index = VFIO_PCI_CONFIG_REGION_INDEX,
	};

	return ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info) == 0 ? info.offset : 0;
}

/* Lets the device master the bus, or not. */
static inline int master(const struct edu *edu, int on)
{
	uint64_t place = place_of_configuration(edu->device) + CONFIGURED;
	uint16_t command;

	if (pread(edu->device, &command, sizeof(command), place) != sizeof(command))
		return -1;
	command = on ? command | MASTER : command & ~MASTER;
	return pwrite(edu->device, &command, sizeof(command), place) == sizeof(command) ? 0 : -1;
}

/* Has the device copy; returns when it has. */
static inline void copy(const struct edu *edu, uint64_t from, uint64_t to, uint64_t count,
			uint64_t how)
{
	put_long(edu, FROM, from);
	put_long(edu, TO, to);
	put_long(edu, COUNT, count);
	put_long(edu, COMMAND, RUNS | how);
}

static inline void copied(const struct edu *edu)
{
	while (get(edu, COMMAND) & RUNS)
		usleep(1000);
}

static inline void to_device(const struct edu *edu, uint64_t from, uint64_t count)
{
	copy(edu, from, BUFFER, count, 0);
	copied(edu);
}

static inline void from_device(const struct edu *edu, uint64_t to, uint64_t count)
{
	copy(edu, BUFFER, to, count, TO_MEMORY);
	copied(edu);
}

/* Has functions of the container find memory of the program at `iova`. */
static inline int map_for(const struct edu *edu, void *memory, uint64_t iova, uint64_t size,
			  uint32_t flags)
{
	struct vfio_iommu_type1_dma_map map = {
		.argsz = sizeof(map), .flags = flags, .vaddr = (uintptr_t)memory, .iova = iova,
		.size = size,
	};

	return ioctl(edu->container, VFIO_IOMMU_MAP_DMA, &map);
}

#define READS VFIO_DMA_MAP_FLAG_READ
#define WRITES VFIO_DMA_MAP_FLAG_WRITE
#define BOTH (READS | WRITES)

/* The opposite; returns how much was mapped, or -1. */
static inline long unmap_for(const struct edu *edu, uint64_t iova, uint64_t size, uint32_t flags)
{
	struct vfio_iommu_type1_dma_unmap unmap = {
		.argsz = sizeof(unmap), .flags = flags, .iova = iova, .size = size,
	};

	return ioctl(edu->container, VFIO_IOMMU_UNMAP_DMA, &unmap) == 0 ? (long)unmap.size : -1;
}

/* Opens all that there is; 0 if that works. */
static inline int open_edu(struct edu *edu, long type)
{
	edu->container = open(CONTAINER, O_RDWR);
	edu->group = open(group_name(), O_RDWR);
	if (edu->container < 0 || edu->group < 0 ||
	    ioctl(edu->group, VFIO_GROUP_SET_CONTAINER, &edu->container) ||
	    ioctl(edu->container, VFIO_SET_IOMMU, type))
		return -1;
	edu->device = ioctl(edu->group, VFIO_GROUP_GET_DEVICE_FD, function());
	if (edu->device < 0)
		return -1;
	edu->registers = mmap(NULL, 0x100000, PROT_READ | PROT_WRITE, MAP_SHARED, edu->device, 0);
	return edu->registers == MAP_FAILED ? -1 : master(edu, 1);
}

static inline void close_edu(struct edu *edu)
{
	munmap((void *)edu->registers, 0x100000);
	close(edu->device);
	close(edu->group);
	close(edu->container);
}

/* Says by which eventfd (-1: by none) message 0 is heard; SET_IRQS of one interrupt. */
static inline int hear(const struct edu *edu, uint32_t index, int event)
{
	char room[sizeof(struct vfio_irq_set) + sizeof(int)];
	struct vfio_irq_set *set = (void *)room;

	*set = (struct vfio_irq_set){
		.argsz = sizeof(room), .index = index, .start = 0, .count = 1,
		.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
	};
	memcpy(set->data, &event, sizeof(event));
	return ioctl(edu->device, VFIO_DEVICE_SET_IRQS, set);
}

#endif
