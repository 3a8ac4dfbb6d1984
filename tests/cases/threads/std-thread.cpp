//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
/* std::thread, std::async, exceptions that cross a future, thread_local objects with destructors. */
#include "arena.h"
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> alive{0}, ended{0};
struct Counted {
    int value = 5;
    Counted() { alive++; }
    ~Counted() { ended++; }
};
static thread_local Counted local;

int main() {
    std::vector<std::thread> threads;
    std::vector<uint64_t> sums(8);
    for (int t = 0; t < 8; t++)
        threads.emplace_back([t, &sums] {
            std::vector<uint64_t> v(1000);
            std::iota(v.begin(), v.end(), t);
            sums[t] = std::accumulate(v.begin(), v.end(), uint64_t(local.value));
        });
    for (auto &t : threads)
        t.join();
    for (auto s : sums)
        mix(s);
    auto failing = std::async(std::launch::async, []() -> int { throw std::runtime_error("from the other thread"); });
    try {
        failing.get();
    } catch (const std::exception &e) {
        std::puts(e.what());
    }
    auto text = std::async(std::launch::async, [](std::string s) { return s + s; }, std::string("ab"));
    std::puts(text.get().c_str());
    std::mutex mutex;
    std::condition_variable changed;
    bool ready = false;
    std::thread waiter([&] {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return ready; });
        std::puts("ready");
    });
    {
        std::lock_guard<std::mutex> lock(mutex);
        ready = true;
    }
    changed.notify_all();
    waiter.join();
    std::printf("%d %d\n", alive.load(), ended.load());
    report("std::thread");
}
