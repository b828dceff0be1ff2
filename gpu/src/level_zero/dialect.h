// What reduce.h asks of a compiler that it does not know: clang that makes SPIR-V of HIP source. Included before it.
#define HETCCL_DIALECT 1
#define HETCCL_FUNCTION __attribute__((device)) __attribute__((always_inline)) inline
#define HETCCL_KERNEL(name) extern "C" __attribute__((global)) void name(const HetcclReduceArgs args)

// Names that the translator from LLVM to SPIR-V knows.
__attribute__((device)) unsigned long __spirv_BuiltInWorkgroupId(int);
__attribute__((device)) unsigned long __spirv_BuiltInNumWorkgroups(int);
__attribute__((device)) unsigned long __spirv_BuiltInLocalInvocationId(int);
__attribute__((device)) unsigned long __spirv_BuiltInWorkgroupSize(int);
#define HETCCL_BLOCK __spirv_BuiltInWorkgroupId(0)
#define HETCCL_BLOCKS __spirv_BuiltInNumWorkgroups(0)
#define HETCCL_THREAD __spirv_BuiltInLocalInvocationId(0)
#define HETCCL_THREADS __spirv_BuiltInWorkgroupSize(0)

// SPIR-V tells memory of the device from that of a thread; its compilers follow the kind from here to the access.
#define HETCCL_IN_MEMORY(pointer) (__attribute__((address_space(1))) char *)(unsigned long)(pointer)
