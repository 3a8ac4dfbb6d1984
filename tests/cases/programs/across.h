/* What across.cpp and across_library.cpp share. */
#include <stdexcept>
#include <string>
struct Failure : std::runtime_error {
    int code;
    Failure(int code, const std::string &what);
    ~Failure() override;
};
struct Visitor {
    virtual ~Visitor();
    virtual int visit(int n) = 0;
};
int walk(int n, Visitor &visitor);
int guarded(int n, Visitor &visitor);
