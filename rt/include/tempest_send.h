/* tempest_send.h - TPPI_send_<list> (section 3.3.2). Part of tempest.h, which explains the items.
 *
 * A list is the names of its items behind each other: TPPI_send_WBa(dest, pc, w1, blk2, len2, chg2). The parameters of item n end in n. Here is a
 * function for each list of up to four items, and for up to sixteen words, alone or with a block or a region behind them. */

/* What item n of a kind is among the parameters of a function (P), and in its list of items (I). */
#define TPPI_KIND_W_P(n) int w##n
#define TPPI_KIND_W_I(n) TPPI_item_W(w##n)
#define TPPI_KIND_Ba_P(n) void *blk##n, int len##n, TPPI_BlkTagChange chg##n
#define TPPI_KIND_Ba_I(n) TPPI_item_Ba(blk##n, len##n, chg##n)
#define TPPI_KIND_R_P(n) void *va##n, int len##n
#define TPPI_KIND_R_I(n) TPPI_item_R(va##n, len##n)
#define TPPI_KIND_F_P(n) int len##n
#define TPPI_KIND_F_I(n) TPPI_item_F(len##n)

#define TPPI_SENDS(count, ...)                           \
    {                                                    \
        TPPI_Item items[] = {__VA_ARGS__};               \
        TPPI_send_items(dest, pc, items, count);         \
    }

/* The function of a list, and those of all lists that begin with it. Only names that begin with TPPI_ are handed on: a program may have a macro W. */
#define TPPI_FROM_4(name, a, b, c, d)                                                                           \
    static inline void name(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, a##_P(1), b##_P(2), c##_P(3), d##_P(4)) \
    TPPI_SENDS(4, a##_I(1), b##_I(2), c##_I(3), d##_I(4))
#define TPPI_FROM_3(name, a, b, c)                                                                   \
    static inline void name(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, a##_P(1), b##_P(2), c##_P(3)) \
    TPPI_SENDS(3, a##_I(1), b##_I(2), c##_I(3))                                                      \
    TPPI_FROM_4(name##W, a, b, c, TPPI_KIND_W)                                                       \
    TPPI_FROM_4(name##Ba, a, b, c, TPPI_KIND_Ba)                                                     \
    TPPI_FROM_4(name##R, a, b, c, TPPI_KIND_R)                                                       \
    TPPI_FROM_4(name##F, a, b, c, TPPI_KIND_F)
#define TPPI_FROM_2(name, a, b)                                                              \
    static inline void name(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, a##_P(1), b##_P(2)) \
    TPPI_SENDS(2, a##_I(1), b##_I(2))                                                        \
    TPPI_FROM_3(name##W, a, b, TPPI_KIND_W)                                                  \
    TPPI_FROM_3(name##Ba, a, b, TPPI_KIND_Ba)                                                \
    TPPI_FROM_3(name##R, a, b, TPPI_KIND_R)                                                  \
    TPPI_FROM_3(name##F, a, b, TPPI_KIND_F)
#define TPPI_FROM_1(name, a)                                                       \
    static inline void name(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, a##_P(1)) \
    TPPI_SENDS(1, a##_I(1))                                                        \
    TPPI_FROM_2(name##W, a, TPPI_KIND_W)                                           \
    TPPI_FROM_2(name##Ba, a, TPPI_KIND_Ba)                                         \
    TPPI_FROM_2(name##R, a, TPPI_KIND_R)                                           \
    TPPI_FROM_2(name##F, a, TPPI_KIND_F)

TPPI_FROM_1(TPPI_send_W, TPPI_KIND_W)
TPPI_FROM_1(TPPI_send_Ba, TPPI_KIND_Ba)
TPPI_FROM_1(TPPI_send_R, TPPI_KIND_R)
TPPI_FROM_1(TPPI_send_F, TPPI_KIND_F)

/* `of` of so many words. */
#define TPPI_WORDS_4(of) of(1), of(2), of(3), of(4)
#define TPPI_WORDS_5(of) TPPI_WORDS_4(of), of(5)
#define TPPI_WORDS_6(of) TPPI_WORDS_5(of), of(6)
#define TPPI_WORDS_7(of) TPPI_WORDS_6(of), of(7)
#define TPPI_WORDS_8(of) TPPI_WORDS_7(of), of(8)
#define TPPI_WORDS_9(of) TPPI_WORDS_8(of), of(9)
#define TPPI_WORDS_10(of) TPPI_WORDS_9(of), of(10)
#define TPPI_WORDS_11(of) TPPI_WORDS_10(of), of(11)
#define TPPI_WORDS_12(of) TPPI_WORDS_11(of), of(12)
#define TPPI_WORDS_13(of) TPPI_WORDS_12(of), of(13)
#define TPPI_WORDS_14(of) TPPI_WORDS_13(of), of(14)
#define TPPI_WORDS_15(of) TPPI_WORDS_14(of), of(15)
#define TPPI_WORDS_16(of) TPPI_WORDS_15(of), of(16)

/* The function of `words` words and an item behind them, which is item number n. The lists of four words and one item are here, too. */
#define TPPI_BEHIND(name, words, n, kind)                                                                                   \
    static inline void name(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, TPPI_WORDS_##words(TPPI_KIND_W_P), kind##_P(n)) \
    TPPI_SENDS(n, TPPI_WORDS_##words(TPPI_KIND_W_I), kind##_I(n))
#define TPPI_BEHIND_WORDS(name, words, n)             \
    TPPI_BEHIND(name##W, words, n, TPPI_KIND_W)       \
    TPPI_BEHIND(name##Ba, words, n, TPPI_KIND_Ba)     \
    TPPI_BEHIND(name##R, words, n, TPPI_KIND_R)

TPPI_BEHIND_WORDS(TPPI_send_WWWW, 4, 5)
TPPI_BEHIND_WORDS(TPPI_send_WWWWW, 5, 6)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWW, 6, 7)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWW, 7, 8)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWW, 8, 9)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWW, 9, 10)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWWW, 10, 11)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWWWW, 11, 12)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWWWWW, 12, 13)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWWWWWW, 13, 14)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWWWWWWW, 14, 15)
TPPI_BEHIND_WORDS(TPPI_send_WWWWWWWWWWWWWWW, 15, 16)
TPPI_BEHIND(TPPI_send_WWWWWWWWWWWWWWWWBa, 16, 17, TPPI_KIND_Ba)
TPPI_BEHIND(TPPI_send_WWWWWWWWWWWWWWWWR, 16, 17, TPPI_KIND_R)
