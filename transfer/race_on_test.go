//go:build race

package transfer

// The explorer runs one coroutine at a time, where the race detector finds nothing and costs a hundredfold: its large cases are
// for builds without it.
const raceDetector = true
