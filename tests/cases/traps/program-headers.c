//# flags: -O2
//# link: -pie | -no-pie | -no-pie -Wl,-z,noseparate-code | -pie -Wl,-z,norelro | -pie -Wl,-z,max-page-size=65536 | -pie -Wl,-z,pack-relative-relocs | -pie -fuse-ld=gold
/* A program that reads its own program headers: from the auxiliary vector, from dl_iterate_phdr and from its file; the
 * program-header table of the input has no room for new entries, however the segments lie. */
#define _GNU_SOURCE
#include "arena.h"
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

static _Thread_local int thread_local_value = 41;
static int found_code, found_data, found_dynamic, found_frames, found_tls;

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    if (info->dlpi_name[0])
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;
        if (p->p_type == PT_LOAD && (uintptr_t)visit >= start && (uintptr_t)visit < end)
            found_code++;
        if (p->p_type == PT_LOAD && (p->p_flags & PF_W) && (uintptr_t)data >= start && (uintptr_t)data < end)
            found_data++;
        if (p->p_type == PT_DYNAMIC)
            found_dynamic += start == (uintptr_t)_DYNAMIC;
        if (p->p_type == PT_TLS)
            found_tls += *(int *)start == 41;
        if (p->p_type == PT_GNU_EH_FRAME)
            found_frames += *(unsigned char *)start == 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    dl_iterate_phdr(visit, &found_code);
    printf("code %d data %d dynamic %d tls %d frames %d\n", found_code, found_data, found_dynamic, found_tls, found_frames);
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    int interpreters = 0, self = 0;
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++) {
        interpreters += headers[i].p_type == PT_INTERP;
        self += headers[i].p_type == PT_PHDR;
    }
    printf("interpreters %d, header segments %d, header size %lu\n", interpreters, self, getauxval(AT_PHENT));
    FILE *file = fopen("/proc/self/exe", "r");
    ElfW(Ehdr) header;
    EXPECT(file && fread(&header, sizeof header, 1, file) == 1 && header.e_phentsize == sizeof *headers, "own file");
    printf("%s %d arguments %d\n", strrchr(argv[0], '/') ? "path" : "name", thread_local_value, argc);
    EXPECT(getenv("BLIZZARD_BOOT") == 0, "the launcher's variable is visible");
    return case_failures != 0;
}
