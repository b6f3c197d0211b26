'use strict';
/*
 * A producer and consumers of ali-ons in one process, with its defaults; it judges itself what it received. It sends
 * with two tags in turn, and what is not acknowledged again. A line "sent" for each send, "verdict" for each check.
 * Its one argument is JSON: modules (a folder with node_modules), namesrv, rounds, interval_ms, patience_s. The topic
 * Plain is to be there.
 */
const { createRequire } = require('module');
const path = require('path');

const settings = JSON.parse(process.argv[2]);
const { Consumer, Message, Producer } = createRequire(path.join(settings.modules, '/'))('ali-ons');

process.stdin.on('end', () => process.exit(137)).on('close', () => process.exit(137)).resume();  // its leash

const quiet = { debug() {}, info() {}, warn() {}, error(...what) { console.error(...what); } };
const common = { httpclient: {}, nameSrv: settings.namesrv, logger: quiet };  // no HTTP where name servers are given
const line = (event, more) => process.stdout.write(JSON.stringify({ event, ...more }) + '\n');
const micros = () => Date.now() * 1000;
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

/** What a consumer was to receive, by number, and what it received. */
class Check {
  constructor(name) {
    Object.assign(this, { name, wanted: new Set(), seen: new Set(), wrong: [], again: 0 });
  }

  see(number) {
    this.again += this.seen.has(number) ? 1 : 0;
    this.seen.add(number);
  }

  get missing() {
    return [...this.wanted].filter(number => !this.seen.has(number));
  }

  print() {
    const { name: check, missing, wrong, again } = this;
    line('verdict', {
      check, ok: !missing.length && !wrong.length && this.wanted.size > 0, wanted: this.wanted.size,
      seen: this.seen.size, again, missing: missing.length, first_missing: missing.slice(0, 5), wrong: wrong.slice(0, 5),
    });
  }
}

const tags = new Check('tags');
const broadcast = new Check('broadcast');
const refused = new Check('refused once');
const all = [tags, broadcast, refused];
const number = message => Number(message.body.toString());

function consume(group, subscription, more, take) {
  const consumer = new Consumer({
    ...common, consumerGroup: group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', ...more });
  consumer.on('error', failure => console.error(`${group}: ${failure.message}`));
  consumer.subscribe('Plain', subscription, async message => take(message));
  return consumer.ready();
}

async function send(producer, message, numbered) {
  for (let tries = 1; ; tries++) {
    const begun_us = micros();
    try {
      const { sendStatus: status } = await producer.send(message);
      line('sent', { number: numbered, tries, begun_us, ended_us: micros(), ok: status === 'SEND_OK', status });
      if (status === 'SEND_OK') return;
    } catch (failure) {
      line('sent', { number: numbered, tries, begun_us, ended_us: micros(), ok: false, error: failure.message });
    }
    await sleep(50);
  }
}

async function main() {
  await consume('node-tags', 'TagA', {}, message => {
    tags.see(number(message));
    if (message.tags !== 'TagA') tags.wrong.push(`${number(message)} has the tag ${message.tags}`);
  });
  await consume('node-broadcast', '*', { isBroadcast: true }, message => broadcast.see(number(message)));
  await consume('node-refused', 'TagB', {}, message => {
    if (message.reconsumeTimes > 0) refused.see(number(message));
    return message.reconsumeTimes > 0 || number(message) % 20 !== 1 ? undefined : Consumer.ACTION_RETRY;
  });
  const producer = new Producer({ ...common, producerGroup: 'node-sender' });
  producer.on('error', failure => console.error(`producer: ${failure.message}`));
  await producer.ready();
  line('started', { at_us: micros() });
  for (let round = 0; round < settings.rounds; round++) {
    await send(producer, new Message('Plain', round % 2 ? 'TagB' : 'TagA', String(round)), round);
    broadcast.wanted.add(round);
    if (round % 2 === 0) tags.wanted.add(round);
    if (round % 20 === 1) refused.wanted.add(round);
    await sleep(settings.interval_ms);
  }
  line('all_sent', { at_us: micros() });
  const end = Date.now() + settings.patience_s * 1000;
  while (Date.now() < end && all.some(check => check.missing.length)) await sleep(100);
  all.forEach(check => check.print());
  line('ended', { at_us: micros() });
  await sleep(60_000);  // until it is told to end
}

main().catch(failure => {
  console.error(failure);
  process.exit(1);
});
