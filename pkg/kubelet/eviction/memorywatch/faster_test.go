package memorywatch

import (
	"testing"
	"time"
)

// TestClimbs: what a pod has gained while its usage went up and down.
func TestClimbs(t *testing.T) {
	const mi, ki = int64(1) << 20, int64(1) << 10
	for name, c := range map[string]struct {
		resident []int64
		want     int64
	}{
		"one look":                      {[]int64{9 * mi}, 0},
		"steady growth":                 {[]int64{0, 300 * ki, 600 * ki, 900 * ki, 1200 * ki}, 1200 * ki},
		"less than a climb":             {[]int64{0, 300 * ki, 600 * ki}, 0},
		"counters vary":                 {[]int64{0, 256 * ki, 0, 256 * ki, 0, 700 * ki, 0, 256 * ki}, 0},
		"growth whose counter varies":   {[]int64{0, 2 * mi, 2*mi - 256*ki, 4 * mi, 4*mi - 512*ki, 6 * mi}, 6 * mi},
		"up and down":                   {[]int64{0, 5 * mi, 10 * mi, 0, 4 * mi, 8 * mi}, 18 * mi},
		"freed first":                   {[]int64{9 * mi, 8 * mi, mi, 3 * mi}, 2 * mi},
		"slowly down, then a climb":     {[]int64{mi, 900 * ki, 700 * ki, 500 * ki, 2 * mi}, 2*mi - 500*ki},
		"the first climb was not all":   {[]int64{0, 2 * mi, 0, 512 * ki}, 2 * mi},
		"looks before it was read":      {[]int64{unknown, unknown, mi, 3 * mi}, 2 * mi},
		"read again after it was not":   {[]int64{0, 8 * mi, unknown, mi, 3 * mi}, 2 * mi},
		"the end of a climb is no gain": {[]int64{0, 4 * mi, 4*mi - 700*ki, 4 * mi}, 4 * mi},
	} {
		l, p := &looks{n: len(c.resident)}, &podLooks{}
		for i, r := range c.resident {
			p.resident[i], l.at[i] = r, time.Unix(0, 0).Add(time.Duration(i)*stepWindow)
		}
		from := l.sumClimbs(p, l.n-1)
		if got := l.climbs[l.n-1]; got != c.want {
			t.Errorf("%s: gained %d KiB since look %d, want %d", name, got/ki, from, c.want/ki)
		}
		rate, ok := l.rateBefore(p, l.n-1)
		if measured := l.n-1 > from; ok != measured || rate < 0 {
			t.Errorf("%s: a rate of %d bytes per second, %t, want measured %t", name, rate, ok, measured)
		}
	}
}
