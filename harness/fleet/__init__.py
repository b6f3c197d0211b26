"""Many simulated brokers in one process, over real connections: they register, beat, report, follow elections.

    broker      one broker's state, and what follows from it: values and rules, no I/O
    fleet       ``Fleet``: all of them over one remoting client and one listener, killed and restarted at will
    witness     what controllers must never answer, checked against everything that brokers hear

A simulated broker speaks to controllers and name servers as a Java broker in controller mode does (codes 1012, 1013,
1003, 1002, 904, 1004, 1001, and 1008 and 103), and stores no messages: catching up with a master takes a configured
time. One process carries thousands: a broker costs a connection to each server and no task of its own.
"""

from harness.fleet.broker import BrokerGroup, SimulatedBroker
from harness.fleet.fleet import Fleet, FleetConfig, open_fleet
from harness.fleet.witness import Witness

__all__ = ["BrokerGroup", "Fleet", "FleetConfig", "SimulatedBroker", "Witness", "open_fleet"]
