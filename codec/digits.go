package codec

import (
	"encoding/binary"
	"math/bits"
)

// Numbers as text, eight digits in one word at a time, the first digit in the lowest byte.

// putHex writes n as sixteen upper-case hex digits.
func putHex(b []byte, n uint64) {
	le := binary.LittleEndian
	le.PutUint64(b[8:], hexWord(uint32(n)))
	le.PutUint64(b, hexWord(uint32(n>>32)))
}

// hexWord is the text of eight hex digits.
func hexWord(n uint32) uint64 {
	const nibbles = ones * 0x0F
	w := uint64(bits.ReverseBytes32(n))
	w = (w | w<<16) & 0x0000FFFF0000FFFF
	w = (w | w<<8) & 0x00FF00FF00FF00FF
	w = (w>>4 | w<<8) & nibbles
	letter := (w + ones*6) >> 4 & ones
	return w + ones*'0' + letter*('A'-'9'-1)
}

// decimalRoom is what putDecimal may write over: up to twenty digits, and a word more.
const decimalRoom = 28

// putDecimal writes n in decimal to the start of b, which has decimalRoom, and returns how many digits that took.
func putDecimal(b []byte, n uint64) int {
	if n >= 1e8 {
		k := putDecimal(b, n/1e8)
		binary.LittleEndian.PutUint64(b[k:], decimalWord(uint32(n%1e8))+ones*'0')
		return k + 8
	}
	w := decimalWord(uint32(n))
	zeros := bits.TrailingZeros64(w|1<<56) / 8 // the last digit stands even if it is zero
	binary.LittleEndian.PutUint64(b, (w+ones*'0')>>(8*zeros))
	return 8 - zeros
}

// decimalWord is the eight digits of n, as numbers from 0 to 9. n is below 10^8.
func decimalWord(n uint32) uint64 {
	w := uint64(n/10000) | uint64(n%10000)<<32       // two of four digits
	hundreds := w * 10486 >> 20 & 0x0000007F0000007F // x*10486>>20 is x/100 for x < 10^4
	w = hundreds | (w-hundreds*100)<<16              // four of two digits
	tens := w * 103 >> 10 & 0x000F000F000F000F       // x*103>>10 is x/10 for x < 100
	return tens | (w-tens*10)<<8
}
