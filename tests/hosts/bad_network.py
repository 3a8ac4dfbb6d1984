# A network that loses and delays: python3 bad_network.py PORTS LOSS_PERCENT DELAY_MS. Each port is a tap device, bz0, bz1, ..., which whoever starts
# this moves to a host. What one sends, all others get, later, or not at all. The seed is fixed.
import fcntl, heapq, os, random, select, struct, sys, time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
ports, loss, delay = int(sys.argv[1]), float(sys.argv[2]) / 100, float(sys.argv[3]) / 1000
random.seed(27)
taps = []
for number in range(ports):
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"bz%d" % number, IFF_TAP | IFF_NO_PI))
    taps.append(tap)
print("ready", flush=True)
waiting, count = [], 0
while True:
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
        _, _, tap, frame = heapq.heappop(waiting)
        for other in taps:
            if other != tap:
                try:
                    os.write(other, frame)
                except OSError:
                    pass  # Its host is not up.
    ready = select.select(taps, [], [], waiting[0][0] - now if waiting else None)[0]
    for tap in ready:
        frame = os.read(tap, 65536)
        if random.random() >= loss:
            count += 1
            heapq.heappush(waiting, (time.monotonic() + delay, count, tap, frame))
