// Allocates by the containers of C++ and by its operators in one region: `allocates N` repeats the
// work N times.
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <pfp.h>
#include <string>
#include <vector>

static void *seen(void *memory)
{
    __asm__ volatile("" : "+r"(memory) : : "memory");
    return memory;
}

struct alignas(128) Aligned {
    char bytes[200];
};

static void work()
{
    std::vector<std::string> texts;
    for (int i = 0; i < 100; i++)
        texts.push_back(std::string(static_cast<std::size_t>(i), 'x'));
    std::map<int, std::string> by_number;
    for (int i = 0; i < 50; i++)
        by_number[i] = texts[static_cast<std::size_t>(i)] + " and more than fits into the string itself";
    seen(&by_number);
    std::shared_ptr<int> shared = std::make_shared<int>(7);
    seen(shared.get());
    ::operator delete(seen(::operator new(33)));
    ::operator delete[](seen(::operator new[](44, std::nothrow)));
    Aligned *aligned = new Aligned();
    seen(aligned);
    delete aligned;
    try {
        throw std::string("an exception is allocated, and so is its text, which is long");
    } catch (const std::string &text) {
        seen(const_cast<char *>(text.data()));
    }
}

int main(int, char **arguments)
{
    for (int rounds = std::atoi(arguments[1]); rounds > 0; rounds--) {
        PFP_SCOPE("work");
        work();
    }
}
