package lossless

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Number int8  `json:"number"`
	Next   *bool `json:"next,omitempty"`
}

type value struct {
	inner
	Text    string            `json:"text"`
	At      time.Time         `json:"at"`
	Named   map[string]uint16 `json:"named"`
	Lost    float32           `json:"-"`
	List    []inner           `json:"list,omitempty"`
	Array   [2]*inner         `json:"array"`
	private int
}

func recode(v value) (got value, err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return got, err
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return got, err
	}
	if got.Text == "" {
		return got, errors.New("no text")
	}
	return got, nil
}

func TestFaultsAreFound(t *testing.T) {
	e := Encoding[value]{Recode: recode, Refused: []string{"Text", "List[].Number"}}
	faults := e.faults()
	for _, want := range []string{
		"private is not exported", "all fields: what was encoded and decoded differs", "List set to []lossless.inner{}: what",
		"a value without List[].Number is decoded",
	} {
		if !slices.ContainsFunc(faults, func(fault string) bool { return strings.HasPrefix(fault, want) }) {
			t.Errorf("not found: %s", want)
		}
	}
	e.Refused = nil
	if !slices.Contains(e.faults(), `Text set to "": no text`) {
		t.Error("an error is no fault")
	}
}

func TestWhatIsNotLostIsNoFault(t *testing.T) {
	e := Encoding[value]{
		Recode: func(v value) (value, error) {
			got, err := recode(v)
			got.Lost, got.List, got.private = v.Lost, v.List, v.private
			return got, err
		},
		Refused: []string{"Text"}, Exempt: map[string]string{"private": "is internal"},
	}
	if faults := e.faults(); len(faults) > 0 {
		t.Error(faults)
	}
	v := e.Full()
	if v.Lost == 0 || !*v.List[1].Next || v.Array[1].Number == 0 || len(v.Named) != 1 || v.At.IsZero() {
		t.Errorf("%+v", v)
	}
}
