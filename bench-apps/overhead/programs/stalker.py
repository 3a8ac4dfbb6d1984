"""A check of a shadow byte in front of each load and store, put in by Frida's Stalker.

    python3 stalker.py GATE SECONDS PROGRAM [ARGS...]

GATE is `stalker.c` as a shared library. The program is started with it, waits in its constructor until the instrumentation stands, and is
then followed, in its first thread, from there to its end. SECONDS is a file: the processor time that the program has used from there on.
Ends as the program does. Needs the package `frida`.

The check is that of a rewriter without analyses: the byte at `T + (address >> 6)`, compared with 0, with two registers and the flags saved
around it. As with Blizzard, accesses relative to the stack pointer, to thread-local storage and to constant addresses have none.
"""

import json
import os
import signal
import sys

# What frida unpacks goes where the result goes, and with it.
if len(sys.argv) > 2:
    os.environ["TMPDIR"] = os.path.dirname(os.path.abspath(sys.argv[2]))

import frida

CHECKS = r"""
#include <gum/gumstalker.h>
#include <string.h>

#define TABLE 0x7fff8000

static int
number (x86_reg reg)
{
  switch (reg)
  {
    case X86_REG_RAX: return 0;
    case X86_REG_RCX: return 1;
    case X86_REG_RDX: return 2;
    case X86_REG_RBX: return 3;
    case X86_REG_RSP: return 4;
    case X86_REG_RBP: return 5;
    case X86_REG_RSI: return 6;
    case X86_REG_RDI: return 7;
    case X86_REG_R8: return 8;
    case X86_REG_R9: return 9;
    case X86_REG_R10: return 10;
    case X86_REG_R11: return 11;
    case X86_REG_R12: return 12;
    case X86_REG_R13: return 13;
    case X86_REG_R14: return 14;
    case X86_REG_R15: return 15;
    default: return -1;
  }
}

static void
check (GumX86Writer * cw, const x86_op_mem * mem)
{
  guint8 code[64];
  guint n = 0, scale = 0, s;
  int base = number (mem->base), index = number (mem->index);
  gint32 disp = (gint32) mem->disp;
  const guint32 table = TABLE;

  for (s = (guint) mem->scale; s > 1; s >>= 1)
    scale++;
  if (base == 4)
    disp += 128 + 16;

#define PUT(...) \
  { \
    const guint8 bytes[] = { __VA_ARGS__ }; \
    memcpy (code + n, bytes, sizeof (bytes)); \
    n += sizeof (bytes); \
  }
  PUT (0x48, 0x8d, 0x64, 0x24, 0x80)                      /* lea rsp, [rsp-128] */
  PUT (0x50, 0x51)                                        /* push rax; push rcx */
  PUT (0x48 | (index >= 8 ? 2 : 0) | (base >= 8 ? 1 : 0), /* lea rcx, M */
       0x8d, (base < 0 ? 0x00 : 0x80) | 0x0c,
       (scale << 6) | ((index < 0 ? 4 : index & 7) << 3) | (base < 0 ? 5 : base & 7))
  memcpy (code + n, &disp, 4);
  n += 4;
  PUT (0x9f, 0x0f, 0x90, 0xc0)                            /* lahf; seto al */
  PUT (0x48, 0xc1, 0xe9, 0x06)                            /* shr rcx, 6 */
  PUT (0x80, 0xb9)                                        /* cmp byte [rcx+TABLE], 0 */
  memcpy (code + n, &table, 4);
  n += 4;
  PUT (0x00)
  PUT (0x74, 0x02, 0x0f, 0x0b)                            /* je over; ud2 */
  PUT (0x04, 0x7f, 0x9e)                                  /* add al, 0x7f; sahf */
  PUT (0x59, 0x58)                                        /* pop rcx; pop rax */
  PUT (0x48, 0x8d, 0xa4, 0x24, 0x80, 0x00, 0x00, 0x00)    /* lea rsp, [rsp+128] */
  gum_x86_writer_put_bytes (cw, code, n);
}

void
transform (GumStalkerIterator * iterator, GumStalkerOutput * output, gpointer user_data)
{
  const cs_insn * insn;

  while (gum_stalker_iterator_next (iterator, &insn))
  {
    const cs_x86 * x86 = &insn->detail->x86;
    int k;

    for (k = 0; k != x86->op_count; k++)
    {
      const cs_x86_op * op = &x86->operands[k];
      const x86_op_mem * mem = &op->mem;

      /* Capstone says of hints that they access nothing. */
      if (op->type != X86_OP_MEM || op->access == 0 || insn->id == X86_INS_LEA || insn->id == X86_INS_NOP)
        continue;
      if (mem->segment == X86_REG_FS || mem->segment == X86_REG_GS)
        continue;
      if (mem->base != X86_REG_INVALID && number (mem->base) < 0)
        continue;
      if (mem->index != X86_REG_INVALID && number (mem->index) < 0)
        continue;
      if (mem->index == X86_REG_INVALID && (mem->base == X86_REG_INVALID || mem->base == X86_REG_RSP))
        continue;
      check (output->writer.x86, mem);
    }
    gum_stalker_iterator_keep (iterator);
  }
}
"""

SCRIPT = """
const checks = new CModule(CHECKS);
const map = new NativeFunction(Module.getGlobalExportByName('mmap'),
    'pointer', ['pointer', 'size_t', 'int', 'int', 'int', 'int64']);
rpc.exports = {
  start(gate) {
    // As large as the address space needs, private, without reserve, at a fixed place that must be free.
    const at = map(ptr(0x7fff8000), uint64('0x20000000000'), 1 | 2, 0x02 | 0x20 | 0x4000 | 0x100000, -1, 0);
    if (!at.equals(ptr(0x7fff8000)))
      throw new Error('no room for the table: ' + at);
    Stalker.trustThreshold = 0;
    Interceptor.attach(Process.getModuleByName(gate).getExportByName('stalker_begin'), {
      onLeave() { Stalker.follow(this.threadId, { transform: checks.transform }); }
    });
  }
};
"""


def used(pid):
    """Processor time of all threads so far, in seconds."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def main():
    gate, seconds, program = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
    go, start = os.pipe()
    os.set_inheritable(go, True)
    env = dict(os.environ, LD_PRELOAD=gate, STALKER_GATE=str(go))
    child = os.posix_spawn(program, sys.argv[3:], env)
    try:
        session = frida.attach(child)
        script = session.create_script("const CHECKS = " + json.dumps(CHECKS) + ";\n" + SCRIPT)
        script.load()
        script.exports_sync.start(os.path.basename(gate))
        before = used(child)
    except Exception as error:  # The program would wait for ever.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sys.exit(f"stalker: {error}")
    os.write(start, b"!")
    _, status, usage = os.wait4(child, 0)
    with open(seconds, "w") as file:
        file.write(str(usage.ru_utime + usage.ru_stime - before))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        sys.stderr.write(f"stalker: the program ended by signal {-code}\n")
    sys.stderr.flush()
    # Frida's own threads are not waited for.
    os._exit(code if code >= 0 else 128 - code)


main()
