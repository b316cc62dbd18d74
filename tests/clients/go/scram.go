package main

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// scramClient is a login by SCRAM (RFC 5802), which sarama leaves to its users. Names of the tests have neither commas nor
// equals signs.
type scramClient struct {
	mechanism sarama.SASLMechanism
	password  string
	first     string
	signature []byte
	step      int
}

func (c *scramClient) Begin(user, password, _ string) error {
	nonce := make([]byte, 18)
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	c.password, c.first = password, "n="+user+",r="+base64.StdEncoding.EncodeToString(nonce)
	return nil
}

func (c *scramClient) Done() bool { return c.step == 3 }

func (c *scramClient) Step(challenge string) (string, error) {
	c.step++
	switch c.step {
	case 1:
		return "n,," + c.first, nil
	case 2:
		return c.proof(challenge)
	default:
		if said := scramParts(challenge)["v"]; said != base64.StdEncoding.EncodeToString(c.signature) {
			return "", fmt.Errorf("the server did not prove that it knows the password: %s", challenge)
		}
		return "", nil
	}
}

func (c *scramClient) proof(challenge string) (string, error) {
	said := scramParts(challenge)
	salt, err := base64.StdEncoding.DecodeString(said["s"])
	rounds, fault := strconv.Atoi(said["i"])
	if err := errors.Join(err, fault); err != nil {
		return "", err
	}
	hashed := sha256.New
	if c.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hashed = sha512.New
	}
	salted, err := pbkdf2.Key(hashed, c.password, salt, rounds, hashed().Size())
	if err != nil {
		return "", err
	}
	last := "c=biws,r=" + said["r"]
	text := c.first + "," + challenge + "," + last
	key := keyed(hashed, salted, "Client Key")
	stored := hashed()
	stored.Write(key)
	proof := keyed(hashed, stored.Sum(nil), text)
	for at := range proof {
		proof[at] ^= key[at]
	}
	c.signature = keyed(hashed, keyed(hashed, salted, "Server Key"), text)
	return last + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

func keyed(hashed func() hash.Hash, key []byte, text string) []byte {
	mac := hmac.New(hashed, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func scramParts(message string) map[string]string {
	parts := map[string]string{}
	for _, part := range strings.Split(message, ",") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	return parts
}
