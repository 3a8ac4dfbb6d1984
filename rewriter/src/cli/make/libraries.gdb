# For gdb, of `blizzard config --gdb`: the signals of the runtime, and rewritten libraries under the names that they are known by.
#
# SIGSYS and signal 33 are the runtime's. So are the SIGILL and SIGTRAP of trap bytes: SIGILL in a process that gdb has started; but gdb told to pass SIGTRAP
# on would pass on those of its own breakpoints, too.
#
# A rewritten program's libraries are known to the dynamic loader, and so to gdbserver, by the names of the originals, whose symbols and frames are
# not those of the code that runs. When libraries are loaded, and at each stop, this looks which files are really mapped, and gives gdb a folder to take as the
# system's root in which the names lead to them. A gdb without gdbserver finds the runtime's list of what is mapped, and needs no such folder.

python
import gdb
import os
import re
import struct
import tempfile


class RewrittenLibraries:
    def __init__(self):
        self.rewritten = {}
        self.folder = None
        # Who has made it removes it, also where gdb is killed. The program is not to see the variable.
        self.given = os.environ.pop("BLIZZARD_GDB_FOLDER", None)
        gdb.execute("unset environment BLIZZARD_GDB_FOLDER", False, True)

    def is_rewritten(self, path):
        """Whether it is an ELF file with a section .blizzard.info."""
        if path not in self.rewritten:
            self.rewritten[path] = self.section(path, b".blizzard.info") is not None
        return self.rewritten[path]

    def section(self, path, wanted):
        """Address, offset and bytes of a section of an ELF file."""
        try:
            with open(path, "rb") as file:
                header = file.read(64)
                if header[:5] != b"\x7fELF\x02":
                    return None
                (table,) = struct.unpack_from("<Q", header, 40)
                size, count, names = struct.unpack_from("<HHH", header, 58)
                file.seek(table)
                headers = [file.read(size) for _ in range(count)]
                at, length = struct.unpack_from("<QQ", headers[names], 24)
                file.seek(at)
                texts = file.read(length)
                for header in headers:
                    (name,) = struct.unpack_from("<I", header)
                    if texts[name:].startswith(wanted + b"\0"):
                        return struct.unpack_from("<QQQ", header, 16)
        except (OSError, struct.error, IndexError):
            pass
        return None

    def mappings(self):
        """What is mapped of files: start, end, offset, path."""
        try:
            table = gdb.execute("info proc mappings", False, True).splitlines()
        except gdb.error:
            # Another machine's process.
            return []
        row = re.compile(r"\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)\s.*?(/.*)$")
        found = [row.match(line) for line in table]
        return [tuple(int(number, 16) for number in match.groups()[:3]) + (match[4],) for match in found if match]

    def mapped(self):
        """The rewritten files of the process, by the last part of their names."""
        paths = [path for _, _, offset, path in self.mappings() if offset == 0]
        return {os.path.basename(path): path for path in paths if self.is_rewritten(path)}

    def names(self):
        """What the dynamic loader calls the libraries."""
        table = gdb.execute("info sharedlibrary", False, True).splitlines()
        found = [re.search(r"(?:Yes(?: \(\*\))?|No)\s+(?:target:)?(/.*)$", line) for line in table]
        folder = self.folder
        for name in (match.group(1) for match in found if match):
            yield name[len(folder):] if folder and name.startswith(folder + "/") else name

    def look(self, _):
        root = gdb.parameter("sysroot")
        if root not in (None, "", "/", "target:", self.folder):
            # Another system's programs.
            return
        names, mapped = list(self.names()), self.mapped()
        if self.folder is None:
            paths = set(mapped.values())
            if all(os.path.realpath(name) in paths for name in names if self.real(name) in mapped):
                # The runtime's list has the names of the rewritten files.
                return
            if not any(self.real(name) in mapped for name in names):
                return
            if self.given is None:
                # Removed when gdb ends.
                self.own = tempfile.TemporaryDirectory(prefix="blizzard-gdb-")
            self.folder = self.given or self.own.name
        changed = False
        for name in names:
            link, target = self.folder + name, mapped.get(self.real(name), name)
            if os.path.islink(link):
                if os.readlink(link) == target:
                    continue
                os.unlink(link)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(target, link)
            changed = True
        if changed:
            gdb.execute("set sysroot " + self.folder, False, True)

    def real(self, name):
        return os.path.basename(os.path.realpath(name))


class Behind(gdb.Breakpoint):
    """Behind a place where the dynamic loader calls a debugger. At the place itself gdb has breakpoints of its own, which go away where it reads libraries anew."""

    def stop(self):
        # Elsewhere, in another run, there may be nothing at that address.
        self.enabled = False
        libraries.look(None)
        return False


class Loaded(gdb.Breakpoint):
    """Where the dynamic loader has loaded libraries: the rewritten ones are known before anything of them runs."""

    PLACE = "_dl_debug_state"
    behind = {}

    def stop(self):
        # The loader's function does nothing, so its return address is on top of the stack. The program's first instruction has the same name.
        at = int(gdb.parse_and_eval("*(unsigned long *)$rsp"))
        if not any(start <= at < end for start, end, _, _ in libraries.mappings()):
            frame = gdb.newest_frame()
            at = frame.architecture().disassemble(frame.pc(), count=2)[1]["addr"]
        if at in self.behind:
            self.behind[at].enabled = True
        else:
            self.behind[at] = Behind("*%#x" % at, internal=True)
        return False

    @classmethod
    def expect(cls, _=None):
        """Where no program is known yet, once one is."""
        try:
            gdb.decode_line(cls.PLACE)
        except gdb.error:
            return
        gdb.events.new_objfile.disconnect(cls.expect)
        cls(cls.PLACE, internal=True)


gdb.execute("handle SIGSYS SIG33 SIGILL nostop noprint pass", False, True)
# Libraries come later than breakpoints.
gdb.execute("set breakpoint pending on", False, True)
libraries = RewrittenLibraries()
gdb.events.stop.connect(libraries.look)
gdb.events.new_objfile.connect(Loaded.expect)
Loaded.expect()
if gdb.selected_inferior().pid:
    # It was there before this file: `-p`, or a core file.
    libraries.look(None)
end
