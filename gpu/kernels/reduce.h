// Reductions of device memory: one source for CUDA (NVRTC), HIP (clang, hiprtc), SPIR-V (clang, as HIP) and the host (any
// C++17 compiler).
//
// Every kernel takes one HetcclReduceArgs by value and computes
//
//     output[i] = inputs[0][i] op inputs[1][i] op ... op inputs[inputs_len - 1][i]        for i in 0..count
//
// from left to right, in one pass. `output` may be the address of any one input. A kernel runs on any one-dimensional
// grid of at most 512 threads a block; README.md beside this file lists the kernels.
//
// How a thread goes over memory: where all pointers are equally far from a 16-byte boundary, elements move in packs of
// 16 bytes, DEPTH packs a thread at a time, and the elements before the first and after the last whole pack one by one.
// Elsewhere all elements move one by one. Elements must have their own natural alignment.
//
// Arithmetic is the same bit for bit on all of them, except for what a NaN of f32 and f64 carries:
// - integers wrap; `avg` divides the wrapped sum and rounds towards zero
// - f16, bf16 and fp8 are widened to f32 for the whole pass and rounded once, to nearest even, at its end
// - fp8 is OCP's: e4m3 is the variant without infinities; what is too large for either becomes its largest number
// - a NaN result of f16 is 0x7fff, of bf16 0x7fff, of either fp8 0x7f
// - no product is fused with a sum
// - min is `a < b ? a : b`, max `a > b ? a : b`: of a NaN and a number the one on the right stays, with its bits
// - minloc and maxloc: of equal values the smaller index wins
#ifndef HETCCL_REDUCE_H
#define HETCCL_REDUCE_H

// ---- The compilers. For another one HETCCL_DIALECT and the words below come from a file that is included before this one,
// such as src/level_zero/dialect.h.

#if defined(HETCCL_DIALECT)
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define HETCCL_CUDA 1
#define HETCCL_FUNCTION __device__ __forceinline__
#define HETCCL_KERNEL(name)                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 2) name(const __grid_constant__ HetcclReduceArgs args)
#elif defined(__HIP__)
#define HETCCL_HIP 1
#define HETCCL_FUNCTION __attribute__((device)) __attribute__((always_inline)) inline
#define HETCCL_KERNEL(name)                                                                                            \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 512))) void name(                 \
        const HetcclReduceArgs args)
#else
#define HETCCL_HOST 1
#define HETCCL_FUNCTION inline
#endif

// What a pointer is cast to before it is cast to one to elements.
#if !defined(HETCCL_IN_MEMORY)
#define HETCCL_IN_MEMORY(pointer) pointer
#endif

// Keeps NVRTC from writing a loop once for a value of `x` that never enters an inner loop and once for all others.
#if defined(HETCCL_CUDA)
#define HETCCL_OPAQUE(x) asm volatile("" : "+r"(x))
#else
#define HETCCL_OPAQUE(x) (void)(x)
#endif

#if defined(HETCCL_CUDA) || defined(__clang__)
#define HETCCL_UNROLL _Pragma("unroll")
#define HETCCL_ROLLED _Pragma("unroll 1")
#else
#define HETCCL_UNROLL _Pragma("GCC unroll 16")
#define HETCCL_ROLLED
#endif

#if defined(__clang__)
#pragma clang fp contract(off)
#endif

// ---- The argument

/// What every kernel takes. 96 bytes, aligned to 8: inputs at 0, output at 64, count at 72, inputs_len at 80, reserved
/// at 84, scalar at 88.
struct HetcclReduceArgs {
    /// 1 to 8 of them are read.
    const void *inputs[8];
    /// May be one of the inputs; overlaps no input otherwise.
    void *output;
    /// Elements of each input and of the output; bytes for hetccl_copy.
    unsigned long long count;
    /// How many inputs, 1 to 8.
    unsigned inputs_len;
    /// 0.
    unsigned reserved;
    /// For premulsum an element (in the low bytes) that every input element is multiplied by; for avg the integer that
    /// the sum is divided by, where 0 counts as 1; otherwise not looked at.
    unsigned long long scalar;
};

namespace hetccl {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;
using address = decltype(sizeof(0));

static_assert(sizeof(i16) == 2 && sizeof(i32) == 4 && sizeof(i64) == 8 && sizeof(void *) == 8, "an LP64 or LLP64 target");
static_assert(sizeof(HetcclReduceArgs) == 96 && alignof(HetcclReduceArgs) == 8, "as documented");
#if !defined(HETCCL_CUDA) // NVRTC has no offsetof
static_assert(__builtin_offsetof(HetcclReduceArgs, output) == 64 && __builtin_offsetof(HetcclReduceArgs, count) == 72 &&
                  __builtin_offsetof(HetcclReduceArgs, inputs_len) == 80 &&
                  __builtin_offsetof(HetcclReduceArgs, scalar) == 88,
              "as documented");
#endif

/// The same bytes as another type. NVRTC 12.0 has no built-in function for it.
template <class To, class From> HETCCL_FUNCTION To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bytes");
#if defined(HETCCL_CUDA)
    union {
        From from;
        To to;
    } both;
    both.from = from;
    return both.to;
#else
    return __builtin_bit_cast(To, from);
#endif
}

// ---- f32 and f64 arithmetic that no compiler fuses

HETCCL_FUNCTION u32 bits(f32 x) { return bit_cast<u32>(x); }
HETCCL_FUNCTION f32 from_bits(u32 x) { return bit_cast<f32>(x); }

#if defined(HETCCL_CUDA)
HETCCL_FUNCTION f32 add(f32 a, f32 b) { return __fadd_rn(a, b); }
HETCCL_FUNCTION f64 add(f64 a, f64 b) { return __dadd_rn(a, b); }
HETCCL_FUNCTION f32 multiply(f32 a, f32 b) { return __fmul_rn(a, b); }
HETCCL_FUNCTION f64 multiply(f64 a, f64 b) { return __dmul_rn(a, b); }
HETCCL_FUNCTION f32 divide(f32 a, f32 b) { return __fdiv_rn(a, b); }
HETCCL_FUNCTION f64 divide(f64 a, f64 b) { return __ddiv_rn(a, b); }
#else
HETCCL_FUNCTION f32 add(f32 a, f32 b) { return a + b; }
HETCCL_FUNCTION f64 add(f64 a, f64 b) { return a + b; }
HETCCL_FUNCTION f32 multiply(f32 a, f32 b) { return a * b; }
HETCCL_FUNCTION f64 multiply(f64 a, f64 b) { return a * b; }
HETCCL_FUNCTION f32 divide(f32 a, f32 b) { return a / b; }
HETCCL_FUNCTION f64 divide(f64 a, f64 b) { return a / b; }
#endif

// ---- Conversions of the small floating-point types. Of the f32 bits, `magnitude` is all but the sign.

HETCCL_FUNCTION f32 widen_f16(u16 half) {
#if defined(HETCCL_CUDA)
    f32 result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half));
    return result;
#elif defined(HETCCL_HIP)
    return static_cast<f32>(bit_cast<_Float16>(half));
#else
    const u32 sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    const u32 subnormal = bits(multiply(static_cast<f32>(static_cast<i32>(magnitude)), 0x1p-24f));
    const u32 normal = (magnitude << 13) + (112u << 23);
    const u32 special = (magnitude << 13) | 0x7f800000u;
    return from_bits(sign | (magnitude < 0x400u ? subnormal : magnitude < 0x7c00u ? normal : special));
#endif
}

HETCCL_FUNCTION u16 narrow_f16(f32 x) {
    const u32 magnitude = bits(x) & 0x7fffffffu;
#if defined(HETCCL_CUDA)
    (void)magnitude;
    u16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
    return result;
#elif defined(HETCCL_HIP)
    const u16 result = bit_cast<u16>(static_cast<_Float16>(x));
    return magnitude > 0x7f800000u ? static_cast<u16>(0x7fff) : result;
#else
    const u32 sign = (bits(x) >> 16) & 0x8000u;
    // The sum's last bit is worth 2^-24, one step of f16's subnormal numbers.
    const u32 subnormal = bits(add(from_bits(magnitude), 0.5f)) - 0x3f000000u;
    const u32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
    const u32 finite = magnitude < 0x38800000u ? subnormal : normal;
    const u32 result = sign | (magnitude < 0x477ff000u ? finite : 0x7c00u);
    return static_cast<u16>(magnitude > 0x7f800000u ? 0x7fffu : result);
#endif
}

HETCCL_FUNCTION f32 widen_bf16(u16 half) { return from_bits(static_cast<u32>(half) << 16); }

HETCCL_FUNCTION u16 narrow_bf16(f32 x) {
#if defined(HETCCL_CUDA) && __CUDA_ARCH__ >= 800
    u16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
    return result;
#else
    const u32 whole = bits(x);
    const u32 rounded = (whole + 0x7fffu + ((whole >> 16) & 1)) >> 16;
    return static_cast<u16>((whole & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
#endif
}

// Since compute_89 NVIDIA converts fp8 two at a time; here the other of the two is not looked at.
#if defined(HETCCL_CUDA) && __CUDA_ARCH__ >= 890
#define HETCCL_FP8_INSTRUCTIONS 1
#endif

HETCCL_FUNCTION f32 widen_e5m2(u8 byte) { return widen_f16(static_cast<u16>(byte << 8)); }

HETCCL_FUNCTION u8 narrow_e5m2(f32 x) {
#if defined(HETCCL_FP8_INSTRUCTIONS)
    u16 result;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(result) : "f"(0.0f), "f"(x));
    return static_cast<u8>(result);
#else
    const u32 sign = (bits(x) >> 24) & 0x80u, magnitude = bits(x) & 0x7fffffffu;
    // The sum's last bit is worth 2^-16, one step of the subnormal numbers.
    const u32 subnormal = bits(add(from_bits(magnitude), 128.0f)) - 0x43000000u;
    const u32 normal = (magnitude - (112u << 23) + 0xfffffu + ((magnitude >> 21) & 1)) >> 21;
    const u32 finite = magnitude < 0x38800000u ? subnormal : normal;
    const u32 result = sign | (magnitude < 0x47600000u ? finite : 0x7bu);
    return static_cast<u8>(magnitude > 0x7f800000u ? 0x7fu : result);
#endif
}

HETCCL_FUNCTION f32 widen_e4m3(u8 byte) {
#if defined(HETCCL_FP8_INSTRUCTIONS)
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(byte)));
    return widen_f16(static_cast<u16>(halves));
#else
    const u32 sign = (byte & 0x80u) << 24, magnitude = byte & 0x7fu;
    // As f32's bits these are the number divided by 2^120, subnormal ones included.
    const f32 finite = multiply(from_bits(magnitude << 20), 0x1p120f);
    return from_bits(sign | (magnitude < 0x7fu ? bits(finite) : 0x7fc00000u));
#endif
}

HETCCL_FUNCTION u8 narrow_e4m3(f32 x) {
#if defined(HETCCL_FP8_INSTRUCTIONS)
    u16 result;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(0.0f), "f"(x));
    return static_cast<u8>(result);
#else
    const u32 sign = (bits(x) >> 24) & 0x80u, magnitude = bits(x) & 0x7fffffffu;
    // The sum's last bit is worth 2^-9, one step of the subnormal numbers.
    const u32 subnormal = bits(add(from_bits(magnitude), 16384.0f)) - 0x46800000u;
    const u32 normal = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1)) >> 20;
    const u32 finite = magnitude < 0x3c800000u ? subnormal : normal;
    const u32 result = sign | (magnitude < 0x43e00000u ? finite : 0x7eu);
    return static_cast<u8>(magnitude > 0x7f800000u ? 0x7fu : result);
#endif
}

// ---- Elements as they lie in memory

struct f16 {
    u16 raw;
};
struct bf16 {
    u16 raw;
};
struct f8e4m3 {
    u8 raw;
};
struct f8e5m2 {
    u8 raw;
};
template <class Part> struct Complex {
    Part re, im;
};
using c64 = Complex<f32>;
using c128 = Complex<f64>;

/// MPI's pairs. Padding has a name, so that it is copied with the value it belongs to.
struct f32_i32 {
    f32 value;
    i32 index;
};
struct f64_i32 {
    f64 value;
    i32 index, padding;
};
struct i64_i32 {
    i64 value;
    i32 index, padding;
};
struct i32_i32 {
    i32 value;
    i32 index;
};
struct i16_i32 {
    i16 value, padding;
    i32 index;
};

/// What an element is computed in: `Wide`, with `widen` and `narrow`.
template <class T> struct Type;

/// Integers are computed without sign, so that they wrap, and in 32 bits at least.
template <class T, class Unsigned> struct IntegerType {
    using Wide = Unsigned;
    static HETCCL_FUNCTION Wide widen(T x) { return static_cast<Wide>(x); }
    static HETCCL_FUNCTION T narrow(Wide x) { return static_cast<T>(x); }
};
template <> struct Type<i8> : IntegerType<i8, u32> {};
template <> struct Type<u8> : IntegerType<u8, u32> {};
template <> struct Type<i16> : IntegerType<i16, u32> {};
template <> struct Type<u16> : IntegerType<u16, u32> {};
template <> struct Type<i32> : IntegerType<i32, u32> {};
template <> struct Type<u32> : IntegerType<u32, u32> {};
template <> struct Type<i64> : IntegerType<i64, u64> {};
template <> struct Type<u64> : IntegerType<u64, u64> {};

template <class T> struct SameType {
    using Wide = T;
    static HETCCL_FUNCTION Wide widen(T x) { return x; }
    static HETCCL_FUNCTION T narrow(Wide x) { return x; }
};
template <> struct Type<f32> : SameType<f32> {};
template <> struct Type<f64> : SameType<f64> {};
template <> struct Type<c64> : SameType<c64> {};
template <> struct Type<c128> : SameType<c128> {};

template <> struct Type<f16> {
    using Wide = f32;
    static HETCCL_FUNCTION Wide widen(f16 x) { return widen_f16(x.raw); }
    static HETCCL_FUNCTION f16 narrow(Wide x) { return f16{narrow_f16(x)}; }
};
template <> struct Type<bf16> {
    using Wide = f32;
    static HETCCL_FUNCTION Wide widen(bf16 x) { return widen_bf16(x.raw); }
    static HETCCL_FUNCTION bf16 narrow(Wide x) { return bf16{narrow_bf16(x)}; }
};
template <> struct Type<f8e4m3> {
    using Wide = f32;
    static HETCCL_FUNCTION Wide widen(f8e4m3 x) { return widen_e4m3(x.raw); }
    static HETCCL_FUNCTION f8e4m3 narrow(Wide x) { return f8e4m3{narrow_e4m3(x)}; }
};
template <> struct Type<f8e5m2> {
    using Wide = f32;
    static HETCCL_FUNCTION Wide widen(f8e5m2 x) { return widen_e5m2(x.raw); }
    static HETCCL_FUNCTION f8e5m2 narrow(Wide x) { return f8e5m2{narrow_e5m2(x)}; }
};

// ---- Arithmetic on wide values

HETCCL_FUNCTION u32 add(u32 a, u32 b) { return a + b; }
HETCCL_FUNCTION u64 add(u64 a, u64 b) { return a + b; }
HETCCL_FUNCTION u32 multiply(u32 a, u32 b) { return a * b; }
HETCCL_FUNCTION u64 multiply(u64 a, u64 b) { return a * b; }

template <class Part> HETCCL_FUNCTION Complex<Part> add(Complex<Part> a, Complex<Part> b) {
    return {add(a.re, b.re), add(a.im, b.im)};
}
template <class Part> HETCCL_FUNCTION Complex<Part> multiply(Complex<Part> a, Complex<Part> b) {
    return {add(multiply(a.re, b.re), -multiply(a.im, b.im)), add(multiply(a.re, b.im), multiply(a.im, b.re))};
}

/// Towards zero; `Wide` is as wide as `T` or wider.
template <class T, class Wide> HETCCL_FUNCTION T divide_integer(T sum, u64 divisor) {
    bool negative = false;
    if constexpr (T(-1) < T(1)) {
        negative = sum < 0;
    }
    const Wide magnitude = negative ? Wide(0) - static_cast<Wide>(sum) : static_cast<Wide>(sum);
    const Wide quotient = divisor > static_cast<Wide>(~Wide(0)) ? Wide(0) : magnitude / static_cast<Wide>(divisor);
    return static_cast<T>(negative ? Wide(0) - quotient : quotient);
}

template <class T> struct Divide {
    static HETCCL_FUNCTION T by(typename Type<T>::Wide sum, u64 divisor) {
        return divide_integer<T, typename Type<T>::Wide>(static_cast<T>(sum), divisor);
    }
};
template <class T> struct DivideFloat {
    using Wide = typename Type<T>::Wide;
    static HETCCL_FUNCTION T by(Wide sum, u64 divisor) {
        // To multiply by a power of two is to divide by one, and faster.
        const bool power_of_two = (divisor & (divisor - 1)) == 0;
        const Wide wide = static_cast<Wide>(divisor);
        return Type<T>::narrow(power_of_two ? multiply(sum, divide(Wide(1), wide)) : divide(sum, wide));
    }
};
template <> struct Divide<f16> : DivideFloat<f16> {};
template <> struct Divide<bf16> : DivideFloat<bf16> {};
template <> struct Divide<f32> : DivideFloat<f32> {};
template <> struct Divide<f64> : DivideFloat<f64> {};
template <> struct Divide<f8e4m3> : DivideFloat<f8e4m3> {};
template <> struct Divide<f8e5m2> : DivideFloat<f8e5m2> {};

HETCCL_FUNCTION bool less(f16 a, f16 b) { return widen_f16(a.raw) < widen_f16(b.raw); }
HETCCL_FUNCTION bool less(bf16 a, bf16 b) { return widen_bf16(a.raw) < widen_bf16(b.raw); }
HETCCL_FUNCTION bool less(f8e4m3 a, f8e4m3 b) { return widen_e4m3(a.raw) < widen_e4m3(b.raw); }
HETCCL_FUNCTION bool less(f8e5m2 a, f8e5m2 b) { return widen_e5m2(a.raw) < widen_e5m2(b.raw); }
template <class T> HETCCL_FUNCTION bool less(T a, T b) { return a < b; }

// ---- Operations: `first` of the first element, `step` for each further one, `last` to the element that is written

/// What an operation has that accumulates elements as they are.
template <class T> struct Keep {
    enum : bool { FOLDS = true };
    using Element = T;
    using Accumulator = T;
    HETCCL_FUNCTION explicit Keep(u64) {}
    HETCCL_FUNCTION T first(T x) const { return x; }
    HETCCL_FUNCTION T last(T accumulator) const { return accumulator; }
};

/// Of one input: further ones are not looked at.
template <class T> struct Copy : Keep<T> {
    enum : bool { FOLDS = false };
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T) const { return a; }
};
template <class T> struct Min : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return less(a, b) ? a : b; }
};
template <class T> struct Max : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return less(b, a) ? a : b; }
};
template <class T> struct Band : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return static_cast<T>(a & b); }
};
template <class T> struct Bor : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return static_cast<T>(a | b); }
};
template <class T> struct Bxor : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return static_cast<T>(a ^ b); }
};
template <class T> struct Land : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return static_cast<T>((a != 0) & (b != 0)); }
};
template <class T> struct Lor : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return static_cast<T>((a | b) != 0); }
};
template <class T> struct Lxor : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const { return static_cast<T>((a != 0) != (b != 0)); }
};
/// Integers of 8 or 16 bits, worked on a word at a time: what is done to one does not carry into the next.
template <class T> struct Word {
    enum : u32 { HIGHEST = sizeof(T) == 1 ? 0x80808080u : 0x80008000u, REST = ~HIGHEST, SHIFT = 8 * sizeof(T) - 1 };
    u32 raw;
};
using i8_words = Word<i8>;
using u8_words = Word<u8>;
using i16_words = Word<i16>;
using u16_words = Word<u16>;

/// The highest bit of each integer that is not 0.
template <class T> HETCCL_FUNCTION u32 truth(Word<T> x) {
    using W = Word<T>;
    return (((x.raw & W::REST) + W::REST) | x.raw) & W::HIGHEST;
}
/// 1 where the highest bit is set.
template <class T> HETCCL_FUNCTION Word<T> ones(u32 truth) { return {truth >> Word<T>::SHIFT}; }
/// All bits of each integer that is less in `a` than in `b`.
template <class T> HETCCL_FUNCTION u32 less_mask(Word<T> a, Word<T> b) {
    using W = Word<T>;
    // With the sign turned over the order is that of integers without one.
    const u32 sign = T(-1) < T(1) ? u32(W::HIGHEST) : 0;
    const u32 x = a.raw ^ sign, y = b.raw ^ sign;
    const u32 difference = ((x | W::HIGHEST) - (y & W::REST)) ^ (~(x ^ y) & W::HIGHEST);
    const u32 borrow = ((~x & y) | (~(x ^ y) & difference)) & W::HIGHEST;
    return borrow | (borrow - (borrow >> W::SHIFT));
}
template <class T> HETCCL_FUNCTION Word<T> choose(u32 mask, Word<T> a, Word<T> b) {
    return {(a.raw & mask) | (b.raw & ~mask)};
}

template <class T> struct Min<Word<T>> : Keep<Word<T>> {
    using Keep<Word<T>>::Keep;
    HETCCL_FUNCTION Word<T> step(Word<T> a, Word<T> b) const { return choose(less_mask(a, b), a, b); }
};
template <class T> struct Max<Word<T>> : Keep<Word<T>> {
    using Keep<Word<T>>::Keep;
    HETCCL_FUNCTION Word<T> step(Word<T> a, Word<T> b) const { return choose(less_mask(b, a), a, b); }
};
template <class T> struct Land<Word<T>> : Keep<Word<T>> {
    using Keep<Word<T>>::Keep;
    HETCCL_FUNCTION Word<T> step(Word<T> a, Word<T> b) const { return ones<T>(truth(a) & truth(b)); }
};
template <class T> struct Lor<Word<T>> : Keep<Word<T>> {
    using Keep<Word<T>>::Keep;
    HETCCL_FUNCTION Word<T> step(Word<T> a, Word<T> b) const { return ones<T>(truth(a) | truth(b)); }
};
template <class T> struct Lxor<Word<T>> : Keep<Word<T>> {
    using Keep<Word<T>>::Keep;
    HETCCL_FUNCTION Word<T> step(Word<T> a, Word<T> b) const { return ones<T>(truth(a) ^ truth(b)); }
};

template <class T> struct Minloc : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const {
        return (a.value < b.value) | ((a.value == b.value) & (a.index < b.index)) ? a : b;
    }
};
template <class T> struct Maxloc : Keep<T> {
    using Keep<T>::Keep;
    HETCCL_FUNCTION T step(T a, T b) const {
        return (a.value > b.value) | ((a.value == b.value) & (a.index < b.index)) ? a : b;
    }
};

/// What an operation has that accumulates wide values.
template <class T> struct Widen {
    enum : bool { FOLDS = true };
    using Element = T;
    using Accumulator = typename Type<T>::Wide;
    HETCCL_FUNCTION explicit Widen(u64) {}
    HETCCL_FUNCTION Accumulator first(T x) const { return Type<T>::widen(x); }
    HETCCL_FUNCTION T last(Accumulator accumulator) const { return Type<T>::narrow(accumulator); }
};

template <class T> struct Sum : Widen<T> {
    using Widen<T>::Widen;
    using Accumulator = typename Widen<T>::Accumulator;
    HETCCL_FUNCTION Accumulator step(Accumulator a, T b) const { return add(a, Type<T>::widen(b)); }
};
template <class T> struct Sum<Word<T>> : Keep<Word<T>> {
    using Keep<Word<T>>::Keep;
    HETCCL_FUNCTION Word<T> step(Word<T> a, Word<T> b) const {
        using W = Word<T>;
        return {((a.raw & W::REST) + (b.raw & W::REST)) ^ ((a.raw ^ b.raw) & W::HIGHEST)};
    }
};
template <class T> struct Prod : Widen<T> {
    using Widen<T>::Widen;
    using Accumulator = typename Widen<T>::Accumulator;
    HETCCL_FUNCTION Accumulator step(Accumulator a, T b) const { return multiply(a, Type<T>::widen(b)); }
};
template <class T> struct Avg : Sum<T> {
    using Accumulator = typename Sum<T>::Accumulator;
    u64 divisor;
    HETCCL_FUNCTION explicit Avg(u64 scalar) : Sum<T>(scalar), divisor(scalar == 0 ? 1 : scalar) {}
    HETCCL_FUNCTION T last(Accumulator accumulator) const { return Divide<T>::by(accumulator, divisor); }
};

template <address> struct LowBytes;
template <> struct LowBytes<1> { using Bits = u8; };
template <> struct LowBytes<2> { using Bits = u16; };
template <> struct LowBytes<4> { using Bits = u32; };
template <> struct LowBytes<8> { using Bits = u64; };

template <class T> struct Premulsum : Widen<T> {
    using Accumulator = typename Widen<T>::Accumulator;
    Accumulator factor;
    HETCCL_FUNCTION explicit Premulsum(u64 scalar)
        : Widen<T>(scalar), factor(Type<T>::widen(bit_cast<T>(
                                static_cast<typename LowBytes<sizeof(T)>::Bits>(scalar)))) {}
    HETCCL_FUNCTION Accumulator first(T x) const { return multiply(Type<T>::widen(x), factor); }
    HETCCL_FUNCTION Accumulator step(Accumulator a, T b) const {
        return add(a, multiply(Type<T>::widen(b), factor));
    }
};

// ---- Going over memory

/// What a thread loads and stores at once.
struct alignas(16) Pack {
    u32 words[4];
};
template <class T> struct Elements {
    enum : u32 { LEN = sizeof(Pack) / sizeof(T) };
    T at[LEN];
};
/// How many packs of each input a thread has in registers at a time. Of bytes each pack takes 16 registers for the sums;
/// a copy has none.
template <class Op> constexpr u32 DEPTH = sizeof(typename Op::Element) == 1 ? 1 : Op::FOLDS ? 2 : 4;

/// Which thread of which block, of how many.
struct Position {
    u32 block, blocks, thread, threads;
};

#if defined(HETCCL_CUDA)
HETCCL_FUNCTION Position position() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }
#elif defined(HETCCL_HIP)
HETCCL_FUNCTION Position position() {
    const u32 threads = __builtin_amdgcn_workgroup_size_x();
    return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_grid_size_x() / threads,
            __builtin_amdgcn_workitem_id_x(), threads};
}
#elif defined(HETCCL_DIALECT)
HETCCL_FUNCTION Position position() {
    return {static_cast<u32>(HETCCL_BLOCK), static_cast<u32>(HETCCL_BLOCKS), static_cast<u32>(HETCCL_THREAD),
            static_cast<u32>(HETCCL_THREADS)};
}
#endif

template <class T> HETCCL_FUNCTION T load(const void *from, u64 index) {
    return ((const T *)HETCCL_IN_MEMORY(from))[index];
}
template <class T> HETCCL_FUNCTION void store(void *to, u64 index, T value) {
    ((T *)HETCCL_IN_MEMORY(to))[index] = value;
}

/// Which elements move in packs: all but the first `head` and the last few.
struct Plan {
    u64 head, packs, singles;
};

template <class T> HETCCL_FUNCTION Plan plan(const HetcclReduceArgs &args) {
    const address output = (address)args.output;
    address difference = 0;
    HETCCL_ROLLED
    for (u32 k = 0; k < args.inputs_len; k++) {
        difference |= (address)args.inputs[k] ^ output;
    }
    const u64 to_boundary = (0 - output) % sizeof(Pack);
    if (difference % sizeof(Pack) != 0 || to_boundary % sizeof(T) != 0) {
        return {args.count, 0, args.count};
    }
    const u64 head = to_boundary / sizeof(T) < args.count ? to_boundary / sizeof(T) : args.count;
    const u64 packs = (args.count - head) / Elements<T>::LEN;
    return {head, packs, args.count - packs * Elements<T>::LEN};
}

template <u32 LEN>
HETCCL_FUNCTION void load_packs(Pack (&packs)[LEN], const void *input, u64 head_bytes, const u64 (&index)[LEN]) {
    HETCCL_UNROLL
    for (u32 d = 0; d < LEN; d++) {
        packs[d] = load<Pack>((const char *)input + head_bytes, index[d]);
    }
}

/// The tiles of this thread's block. `Op` works on the elements of packs.
template <class Op>
HETCCL_FUNCTION void move_packs(const HetcclReduceArgs &args, u64 head_bytes, u64 packs, Position here) {
    using Lanes = Elements<typename Op::Element>;
    constexpr u32 DEEP = DEPTH<Op>;
    const Op op(args.scalar);
    const u64 tile_len = static_cast<u64>(here.threads) * DEEP;
    for (u64 start = here.block * tile_len; start < packs; start += here.blocks * tile_len) {
        const u64 own = start + here.thread;
        u64 index[DEEP];
        Pack now[DEEP], ahead[DEEP];
        typename Op::Accumulator accumulators[DEEP][Lanes::LEN];
        // Past the end the last pack is read once more, and nothing written.
        HETCCL_UNROLL
        for (u32 d = 0; d < DEEP; d++) {
            const u64 wanted = own + d * here.threads;
            index[d] = wanted < packs ? wanted : packs - 1;
        }
        // Loads are one input ahead of the arithmetic. A branch around the second would double the code of this loop.
        load_packs(now, args.inputs[0], head_bytes, index);
        if constexpr (Op::FOLDS) {
            load_packs(ahead, args.inputs[args.inputs_len > 1], head_bytes, index);
        }
        HETCCL_UNROLL
        for (u32 d = 0; d < DEEP; d++) {
            const Lanes lanes = bit_cast<Lanes>(now[d]);
            HETCCL_UNROLL
            for (u32 i = 0; i < Lanes::LEN; i++) {
                accumulators[d][i] = op.first(lanes.at[i]);
            }
        }
        HETCCL_ROLLED
        for (u32 k = 1; Op::FOLDS && k < args.inputs_len; k++) {
            HETCCL_UNROLL
            for (u32 d = 0; d < DEEP; d++) {
                now[d] = ahead[d];
            }
            if (k + 1 < args.inputs_len) {
                load_packs(ahead, args.inputs[k + 1], head_bytes, index);
            }
            HETCCL_UNROLL
            for (u32 d = 0; d < DEEP; d++) {
                const Lanes lanes = bit_cast<Lanes>(now[d]);
                HETCCL_UNROLL
                for (u32 i = 0; i < Lanes::LEN; i++) {
                    accumulators[d][i] = op.step(accumulators[d][i], lanes.at[i]);
                }
            }
        }
        HETCCL_UNROLL
        for (u32 d = 0; d < DEEP; d++) {
            Lanes lanes;
            HETCCL_UNROLL
            for (u32 i = 0; i < Lanes::LEN; i++) {
                lanes.at[i] = op.last(accumulators[d][i]);
            }
            if (own + d * here.threads < packs) {
                store<Pack>((char *)args.output + head_bytes, index[d], bit_cast<Pack>(lanes));
            }
        }
    }
}

/// This thread's share of the elements that are in no pack.
template <class Op, class T>
HETCCL_FUNCTION void move_singles(const HetcclReduceArgs &args, Plan plan, Position here) {
    const Op op(args.scalar);
    const u64 between = plan.packs * Elements<T>::LEN;
    const u64 stride = static_cast<u64>(here.blocks) * here.threads;
    HETCCL_ROLLED
    for (u64 i = static_cast<u64>(here.block) * here.threads + here.thread; i < plan.singles; i += stride) {
        const u64 index = i < plan.head ? i : i + between;
        u32 inputs_len = args.inputs_len;
        HETCCL_OPAQUE(inputs_len);
        auto accumulator = op.first(load<T>(args.inputs[0], index));
        HETCCL_ROLLED
        for (u32 k = 1; Op::FOLDS && k < inputs_len; k++) {
            accumulator = op.step(accumulator, load<T>(args.inputs[k], index));
        }
        store<T>(args.output, index, op.last(accumulator));
    }
}

/// One thread of a kernel. `Lane` is what packs are made of: `T`, or a wider type where that gives the same bits.
template <template <class> class Op, class T, class Lane>
HETCCL_FUNCTION void reduce(const HetcclReduceArgs &args, Plan plan, Position here) {
    move_packs<Op<Lane>>(args, plan.head * sizeof(T), plan.packs, here);
    move_singles<Op<T>, T>(args, plan, here);
}

} // namespace hetccl

// ---- The kernels: EACH(name, operation, element type, type in packs). A compiler that is to make one of them is given its
// line as HETCCL_ONLY(EACH).

#define HETCCL_INTEGERS(EACH, name, Op)                                                                                \
    EACH(hetccl_reduce_##name##_i8, Op, i8, i8)                                                                        \
    EACH(hetccl_reduce_##name##_u8, Op, u8, u8)                                                                        \
    EACH(hetccl_reduce_##name##_i16, Op, i16, i16)                                                                     \
    EACH(hetccl_reduce_##name##_u16, Op, u16, u16)                                                                     \
    EACH(hetccl_reduce_##name##_i32, Op, i32, i32)                                                                     \
    EACH(hetccl_reduce_##name##_u32, Op, u32, u32)                                                                     \
    EACH(hetccl_reduce_##name##_i64, Op, i64, i64)                                                                     \
    EACH(hetccl_reduce_##name##_u64, Op, u64, u64)

#define HETCCL_BITS(EACH, name, Op)                                                                                    \
    EACH(hetccl_reduce_##name##_i8, Op, i8, u32)                                                                       \
    EACH(hetccl_reduce_##name##_u8, Op, u8, u32)                                                                       \
    EACH(hetccl_reduce_##name##_i16, Op, i16, u32)                                                                     \
    EACH(hetccl_reduce_##name##_u16, Op, u16, u32)                                                                     \
    EACH(hetccl_reduce_##name##_i32, Op, i32, u32)                                                                     \
    EACH(hetccl_reduce_##name##_u32, Op, u32, u32)                                                                     \
    EACH(hetccl_reduce_##name##_i64, Op, i64, u32)                                                                     \
    EACH(hetccl_reduce_##name##_u64, Op, u64, u32)

#define HETCCL_WORDS(EACH, name, Op)                                                                                   \
    EACH(hetccl_reduce_##name##_i8, Op, i8, i8_words)                                                                  \
    EACH(hetccl_reduce_##name##_u8, Op, u8, u8_words)                                                                  \
    EACH(hetccl_reduce_##name##_i16, Op, i16, i16_words)                                                               \
    EACH(hetccl_reduce_##name##_u16, Op, u16, u16_words)                                                               \
    EACH(hetccl_reduce_##name##_i32, Op, i32, i32)                                                                     \
    EACH(hetccl_reduce_##name##_u32, Op, u32, u32)                                                                     \
    EACH(hetccl_reduce_##name##_i64, Op, i64, i64)                                                                     \
    EACH(hetccl_reduce_##name##_u64, Op, u64, u64)

#define HETCCL_FLOATS(EACH, name, Op)                                                                                  \
    EACH(hetccl_reduce_##name##_f16, Op, f16, f16)                                                                     \
    EACH(hetccl_reduce_##name##_bf16, Op, bf16, bf16)                                                                  \
    EACH(hetccl_reduce_##name##_f32, Op, f32, f32)                                                                     \
    EACH(hetccl_reduce_##name##_f64, Op, f64, f64)                                                                     \
    EACH(hetccl_reduce_##name##_f8e4m3, Op, f8e4m3, f8e4m3)                                                            \
    EACH(hetccl_reduce_##name##_f8e5m2, Op, f8e5m2, f8e5m2)

#define HETCCL_COMPLEX(EACH, name, Op)                                                                                 \
    EACH(hetccl_reduce_##name##_c64, Op, c64, c64)                                                                     \
    EACH(hetccl_reduce_##name##_c128, Op, c128, c128)

#define HETCCL_PAIRS(EACH, name, Op)                                                                                   \
    EACH(hetccl_reduce_##name##_f32_i32, Op, f32_i32, f32_i32)                                                         \
    EACH(hetccl_reduce_##name##_f64_i32, Op, f64_i32, f64_i32)                                                         \
    EACH(hetccl_reduce_##name##_i64_i32, Op, i64_i32, i64_i32)                                                         \
    EACH(hetccl_reduce_##name##_i32_i32, Op, i32_i32, i32_i32)                                                         \
    EACH(hetccl_reduce_##name##_i16_i32, Op, i16_i32, i16_i32)

#define HETCCL_KERNELS(EACH)                                                                                           \
    EACH(hetccl_copy, Copy, u8, u32)                                                                                   \
    HETCCL_WORDS(EACH, sum, Sum)                                                                                       \
    HETCCL_FLOATS(EACH, sum, Sum)                                                                                      \
    HETCCL_COMPLEX(EACH, sum, Sum)                                                                                     \
    HETCCL_INTEGERS(EACH, prod, Prod)                                                                                  \
    HETCCL_FLOATS(EACH, prod, Prod)                                                                                    \
    HETCCL_COMPLEX(EACH, prod, Prod)                                                                                   \
    HETCCL_WORDS(EACH, min, Min)                                                                                       \
    HETCCL_FLOATS(EACH, min, Min)                                                                                      \
    HETCCL_WORDS(EACH, max, Max)                                                                                       \
    HETCCL_FLOATS(EACH, max, Max)                                                                                      \
    HETCCL_INTEGERS(EACH, avg, Avg)                                                                                    \
    HETCCL_FLOATS(EACH, avg, Avg)                                                                                      \
    HETCCL_INTEGERS(EACH, premulsum, Premulsum)                                                                        \
    HETCCL_FLOATS(EACH, premulsum, Premulsum)                                                                          \
    HETCCL_BITS(EACH, band, Band)                                                                                      \
    HETCCL_BITS(EACH, bor, Bor)                                                                                        \
    HETCCL_BITS(EACH, bxor, Bxor)                                                                                      \
    HETCCL_WORDS(EACH, land, Land)                                                                                     \
    HETCCL_WORDS(EACH, lor, Lor)                                                                                       \
    HETCCL_WORDS(EACH, lxor, Lxor)                                                                                     \
    HETCCL_PAIRS(EACH, minloc, Minloc)                                                                                 \
    HETCCL_PAIRS(EACH, maxloc, Maxloc)

#if !defined(HETCCL_HOST)
#define HETCCL_DEFINE(name, Op, T, Lane)                                                                               \
    HETCCL_KERNEL(name) {                                                                                              \
        hetccl::reduce<hetccl::Op, hetccl::T, hetccl::Lane>(args, hetccl::plan<hetccl::T>(args), hetccl::position());  \
    }
#if defined(HETCCL_ONLY)
HETCCL_ONLY(HETCCL_DEFINE)
#else
HETCCL_KERNELS(HETCCL_DEFINE)
#endif
#endif

#endif // HETCCL_REDUCE_H
